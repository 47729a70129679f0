//! Pieces that several pages use.

use maud::{Markup, html};
use push_model::{app::AppKey, ids::AppId};

use super::words::{Mood, number, percent};

/// The field that chooses an app. Its values say which app of a name is meant.
pub(crate) fn app_choice(apps: &[AppKey], chosen: Option<&AppKey>) -> Markup {
    html! {
        div class="field" {
            label for="app" { "App" }
            select id="app" name="app" {
                @for app in apps { option value=(app) selected[chosen == Some(app)] { (app.id) } }
            }
        }
    }
}

/// The link to the rest of a list, with the filter that the list has.
pub(crate) fn next_page(cursor: Option<&str>, path: &str, filter: &[(&str, &str)]) -> Markup {
    let Some(cursor) = cursor else { return Markup::default() };
    let query = query(filter.iter().copied().chain([("cursor", cursor)]));
    html! {
        nav class="bar" aria-label="Rest of the list" {
            a class="button quiet" href={ (path) "?" (query) } { "Older ones" }
        }
    }
}

/// Encodes the members that have a value.
pub(crate) fn query<'a>(members: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let members = members.into_iter().filter(|(_, value)| !value.is_empty());
    form_urlencoded::Serializer::new(String::new()).extend_pairs(members).finish()
}

/// A page that says one thing, and where to go on.
pub(crate) fn notice(title: &str, mood: Mood, text: &str) -> Markup {
    html! {
        h1 { (title) }
        p class={ "note " (mood.class()) } role="status" { (text) }
    }
}

/// The way to the first push, for a service that has no app yet.
pub(crate) fn no_apps(title: &str, may_make: bool) -> Markup {
    html! {
        h1 { (title) }
        section class="card" aria-labelledby="start" {
            h2 id="start" { "Start here: there is no app yet" }
            ol class="steps" {
                li {
                    "Make an app. Pushes, devices and secrets belong to one."
                    @if may_make { (make_app("news")) } @else {
                        " Your key may not; an administrator of the service does, or "
                        code { "pushctl app create news" } "."
                    }
                }
                li { "Let this browser be its first device, and send it a push." }
                li { "Send from your backend, with the secret of the app." }
            }
        }
    }
}

/// The form that makes an app.
pub(crate) fn make_app(suggested: &str) -> Markup {
    html! {
        form class="filter" method="post" action="/apps" {
            div class="field" {
                label for="app_id" { "App ID" }
                input id="app_id" name="app_id" value=(suggested) required maxlength="64" pattern="[A-Za-z0-9_.\\-]+"
                    autocomplete="off" placeholder="news" title="1 to 64 of A-Z a-z 0-9 _ . -, but not . or ..";
            }
            button { "Make the app" }
        }
    }
}

/// A line of a funnel: a name, a bar as long as the share of `of`, the count, and the share. A part is set below the line
/// that it belongs to.
pub(crate) fn bar(name: &str, count: u64, of: u64, mood: &str, is_part: bool) -> Markup {
    let share = if of == 0 { 0.0 } else { count as f64 / of as f64 };
    let (is_zero, share_text) = (count == 0, percent(share));
    html! {
        span.part[is_part].zero[is_zero] { (name) }
        progress class=(mood) max="1" value=(format!("{share:.4}")) aria-label={ (name) ": " (share_text) } {}
        span.number.zero[is_zero] { (number(count)) }
        span.number.hint.share { @if !is_zero { (share_text) } }
    }
}

/// Text for a machine, with a button that copies it where the browser can.
pub(crate) fn code(label: &str, text: &str) -> Markup {
    html! {
        div class="code" {
            pre tabindex="0" aria-label=(label) { (text) }
            button class="quiet small" type="button" data-copy hidden { "Copy" }
        }
    }
}

/// A notification as a phone may show it.
pub(crate) fn notification(app: &AppId, title: &str, text: &str, button: Option<&str>) -> Markup {
    html! {
        div class="phone" {
            div class="notification" {
                header { span { (app) } span { "now" } }
                @if !title.is_empty() { strong { (title) } }
                p { (text) }
                @if let Some(button) = button { p { strong { (button) } } }
            }
        }
    }
}

/// A button that opens another one, which does it: for what must be quick, and not by mistake.
pub(crate) fn confirm_by(open: &str, action: &str, done: &str) -> Markup {
    html! {
        details {
            summary class="button danger" { (open) }
            form method="post" action=(action) { button class="danger sure" { (done) } }
        }
    }
}

/// Asks before something that cannot be undone; without JavaScript, too.
pub(crate) fn confirm(
    title: &str,
    lost: &str,
    action: &str,
    hidden: &[(&str, &str)],
    word: &str,
    back: &str,
) -> Markup {
    html! {
        h1 { (title) }
        div class="card" {
            p { (lost) }
            form class="stack" method="post" action=(action) {
                @for (name, value) in hidden { input type="hidden" name=(name) value=(value); }
                div class="field" {
                    label for="confirm" { "Type " code { (word) } " to go on" }
                    input id="confirm" name="confirm" autocomplete="off" required;
                }
                div class="actions" {
                    button class="danger" { (title) }
                    a class="button quiet" href=(back) { "Keep it" }
                }
            }
        }
    }
}
