//! Pieces that several pages use.

use maud::{Markup, html};
use push_model::app::AppKey;

use super::words::Mood;

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

/// A page for a service that has no app yet.
pub(crate) fn no_apps() -> Markup {
    html! {
        h1 { "No app yet" }
        p { "Pushes belong to an app. Make the first one:" }
        pre { "pushctl app create news --save" }
        p { "or on the page " a href="/apps" { "Apps" } "." }
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
