//! Composes a push: the form, and beside it the request, its audience and a picture of it.

use std::time::Duration;

use maud::{Markup, html};
use push_model::{app::AppKey, audience::AudienceReport, secret::Secret};
use serde_json::Value;

use super::{
    parts::{app_choice, code, notification},
    words::{counted, duration, number, plain},
};
use crate::draft::{Draft, HINTS, NOTIFICATION, TARGETING, curl};

/// What the check and the count said of a draft.
#[derive(Debug, Default)]
pub(crate) struct Preview {
    /// The request.
    pub(crate) request: Value,
    /// The error of the check; none if the push would be accepted.
    pub(crate) refused: Option<String>,
    pub(crate) warnings: Vec<String>,
    /// The audience; the reason if it was not counted.
    pub(crate) audience: Option<Result<AudienceReport, String>>,
}

/// A filter that shows the form.
const FILTER_EXAMPLE: &str = r#"{"attribute":"level","gte":10}"#;

/// The page.
pub(crate) fn view(
    apps: &[AppKey],
    app: &AppKey,
    draft: &Draft,
    preview: &Preview,
    server: &str,
) -> Markup {
    html! {
        h1 { "Compose" }
        form class="two" method="post" action="/compose"
            hx-post="/compose/preview" hx-trigger="load, input delay:400ms, change delay:100ms"
            hx-target="#preview" hx-swap="innerMorph" hx-sync="this:replace" {
            div {
                section class="card" aria-labelledby="who" {
                    h2 id="who" { "Who gets it" }
                    div class="stack" { (audience_fields(apps, app, draft)) }
                }
                section class="card" aria-labelledby="what" {
                    h2 id="what" { "What they get" }
                    (content_fields(draft))
                }
                section class="card" aria-labelledby="how" {
                    h2 id="how" { "How it is sent" }
                    (delivery_fields(draft))
                }
            }
            div id="preview" aria-live="polite" { (beside(app, draft, preview, server)) }
        }
    }
}

fn audience_fields(apps: &[AppKey], app: &AppKey, draft: &Draft) -> Markup {
    let audience = draft.field("audience");
    let chosen = if audience.is_empty() { "all" } else { audience };
    html! {
        (app_choice(apps, Some(app)))
        fieldset {
            legend { "Devices" }
            div class="choices" {
                @for (value, label) in [("all", "All of the app"), ("targeting", "Those that match"), ("clients", "By client id")] {
                    label { input type="radio" name="audience" value=(value) checked[chosen == value]; (label) }
                }
            }
        }
        div class="targeting" {
            div class="row" {
                @for (name, label, example) in TARGETING {
                    div class="field" {
                        label for=(name) { (label) }
                        input id=(name) name=(name) value=(draft.field(name)) placeholder=(example) autocomplete="off";
                    }
                }
            }
            p class="hint" { "Several values between commas. An empty field does not restrict." }
            div class="field" {
                label for="topics" { "Topics " span class="hint" { "devices that have one of them" } }
                input id="topics" name="topics" value=(draft.field("topics")) placeholder="f1, sports" autocomplete="off";
            }
            details open[!draft.field("filter").is_empty()] {
                summary { "Attributes of your own" }
                div class="field" {
                    label for="filter" { "Filter " span class="hint" { "JSON of " code { "condition.targeting.filter" } } }
                    textarea id="filter" name="filter" autocomplete="off" spellcheck="false" placeholder=(FILTER_EXAMPLE) { (draft.field("filter")) }
                    p class="hint" { "For example " code { (FILTER_EXAMPLE) } "; parts are combined with " code { "all" } ", " code { "any" } " and " code { "not" } "." }
                }
            }
        }
        div class="clients" {
            div class="field" {
                label for="client_ids" { "Client ids " span class="hint" { "between commas or on lines" } }
                textarea id="client_ids" name="client_ids" autocomplete="off" { (draft.field("client_ids")) }
            }
            div class="field" {
                label for="user_ids" { "Users " span class="hint" { "all devices of each" } }
                input id="user_ids" name="user_ids" value=(draft.field("user_ids")) autocomplete="off";
            }
        }
        details open[["sample_from", "sample_to"].iter().any(|name| !draft.field(name).is_empty())] {
            summary { "Only a share of them" }
            div class="row" {
                @for (name, label, example) in [("sample_from", "From percent", "0"), ("sample_to", "To percent", "10"), ("sample_seed", "Seed", "spring")] {
                    div class="field" { label for=(name) { (label) } input id=(name) name=(name) value=(draft.field(name)) placeholder=(example) autocomplete="off"; }
                }
            }
            p class="hint" { "The same seed gives the same share: 10 to 100 is the rest of 0 to 10. Not for named devices." }
        }
    }
}

fn content_fields(draft: &Draft) -> Markup {
    let is_data = draft.field("content") == "data";
    let text = |name: &str, label: &str| {
        html! {
            div class="field" {
                label for=(name) { (label) }
                input id=(name) name=(name) value=(draft.field(name)) autocomplete="off";
            }
        }
    };
    html! {
        div class="stack" {
            div class="choices" role="radiogroup" aria-label="Kind of content" {
                label { input type="radio" name="content" value="notification" checked[!is_data]; "A notification" }
                label { input type="radio" name="content" value="data" checked[is_data]; "Data for the app" }
            }
            div class="stack notified" {
                @for (name, label) in &NOTIFICATION[..2] { (text(name, label)) }
                details open[!draft.field("localized").is_empty()] {
                    summary { "Other languages" }
                    div class="field" {
                        label for="localized" { "Texts " span class="hint" { "LANGUAGE | TITLE | TEXT on each line" } }
                        textarea id="localized" name="localized" autocomplete="off" placeholder="de | Hallo | Willkommen" { (draft.field("localized")) }
                    }
                }
                details open[NOTIFICATION[2..].iter().any(|(name, _)| !draft.field(name).is_empty())] {
                    summary { "Icon, button and what a tap opens" }
                    div class="row" {
                        (choice(draft, "notification_type", "Kind", &[("", "Plain"), ("3", "With a button")]))
                        (choice(draft, "open_type", "A tap opens", &[("", "Left to the app"), ("1", "The app"), ("2", "The link")]))
                        @for (name, label) in &NOTIFICATION[2..] { (text(name, label)) }
                    }
                }
            }
            div class="field data" {
                label for="data" { "Data " span class="hint" { "KEY=VALUE on each line" } }
                textarea id="data" name="data" autocomplete="off" { (draft.field("data")) }
            }
        }
    }
}

fn delivery_fields(draft: &Draft) -> Markup {
    html! {
        div class="stack" {
            div class="row" {
                (choice(draft, "time_to_live", "Give up after", &[("3600", "1 hour"), ("0", "Now or never"), ("600", "10 minutes"), ("86400", "1 day"), ("604800", "1 week")]))
                (choice(draft, "priority", "Priority", &[("", "Left to the provider"), ("normal", "Normal"), ("high", "High")]))
            }
            details open[HINTS.iter().map(|(name, _)| *name).chain(["badge"]).any(|name| !draft.field(name).is_empty())] {
                summary { "Hints for phones" }
                div class="row" {
                    @for (name, label) in HINTS {
                        div class="field" { label for=(name) { (label) } input id=(name) name=(name) value=(draft.field(name)) autocomplete="off"; }
                    }
                    div class="field" { label for="badge" { "Badge" } input id="badge" name="badge" inputmode="numeric" value=(draft.field("badge")) autocomplete="off"; }
                }
            }
        }
    }
}

fn choice(draft: &Draft, name: &str, label: &str, options: &[(&str, &str)]) -> Markup {
    html! {
        div class="field" {
            label for=(name) { (label) }
            select id=(name) name=(name) {
                @for (value, text) in options { option value=(value) selected[draft.field(name) == *value] { (text) } }
            }
        }
    }
}

/// Shows the audience, the picture and the request beside the form. The browser asks for it again after each change.
pub(crate) fn beside(app: &AppKey, draft: &Draft, preview: &Preview, server: &str) -> Markup {
    html! {
        section class="card" aria-labelledby="audience" {
            h2 id="audience" { "Audience" }
            @match &preview.audience {
                None => p class="empty" { "Counted as you type." },
                Some(Err(why)) => p class="note warn" { (why) },
                Some(Ok(audience)) => (audience_view(audience)),
            }
            @if let Some(error) = &preview.refused { p class="note bad" { (error) } }
            @for warning in &preview.warnings { p class="note warn" { (warning) } }
            div class="actions" {
                button disabled[preview.refused.is_some()] { "Check and send…" }
            }
        }
        section class="card" aria-labelledby="picture" {
            h2 id="picture" { "On a phone" }
            (phone(app, draft))
        }
        section class="card" aria-labelledby="request" {
            h2 id="request" { "The same push as a request" }
            (code("JSON", &serde_json::to_string_pretty(&preview.request).unwrap_or_default()))
            p class="hint" { "With curl" }
            (code("curl", &curl(server, app.id.as_str(), &preview.request)))
        }
    }
}

fn audience_view(audience: &AudienceReport) -> Markup {
    let counts = &audience.counts;
    html! {
        p {
            strong class="large" { (counted(counts.devices, "device")) }
            @if let Some(seconds) = audience.seconds_at_pace {
                ", " (duration(Duration::from_secs(seconds))) " at the pace of the app"
            }
        }
        dl class="facts after" {
            @for count in &counts.after_each_criterion {
                dt { "after " (plain(count.criterion.name())) } dd { (number(count.devices)) }
            }
            @for (transport, devices) in &counts.by_transport {
                dt { "over " (transport.name()) } dd { (number(*devices)) }
            }
        }
    }
}

/// A picture of the notification, as a phone may show it.
fn phone(app: &AppKey, draft: &Draft) -> Markup {
    html! {
        @if draft.field("content") == "data" {
            (notification(&app.id, "", "Data for the app. Nothing is shown.", None))
        } @else {
            @let button = (draft.field("notification_type") == "3").then(|| or(draft.field("button_text"), "Button"));
            (notification(&app.id, or(draft.field("title"), "Title"), or(draft.field("desc"), "Text"), button))
        }
    }
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

/// The last look before a push is sent.
pub(crate) fn review(
    app: &AppKey,
    draft: &Draft,
    preview: &Preview,
    confirm: Option<&str>,
    server: &str,
) -> Markup {
    let request = preview.request.to_string();
    let devices =
        preview.audience.as_ref().and_then(|of| of.as_ref().ok()).map(|of| of.counts.devices);
    html! {
        h1 { "Send this push?" }
        div class="card" {
            p {
                "To " strong { @match devices { Some(devices) => (counted(devices, "device")), None => "the devices of the request" } }
                " of " strong { (app.id) } ". The service has checked it and would accept it."
            }
            @for warning in &preview.warnings { p class="note warn" { (warning) } }
            form class="stack" method="post" action="/compose/send" {
                input type="hidden" name="app" value=(app);
                input type="hidden" name="request" value=(request);
                input type="hidden" name="once" value=(Secret::generate().expose());
                @if let Some(word) = confirm {
                    div class="field" {
                        label for="confirm" { "Type " code { (word) } " to send it" }
                        input id="confirm" name="confirm" autocomplete="off" required;
                    }
                }
                div class="actions" {
                    button { "Send now" }
                }
            }
            form class="bar" method="post" action="/compose" {
                input type="hidden" name="change" value="1";
                @for (name, text) in draft.fields() { input type="hidden" name=(name) value=(text); }
                button class="quiet" { "Change it" }
            }
        }
        section class="card" aria-labelledby="request" {
            h2 id="request" { "Request" }
            (code("curl", &curl(server, app.id.as_str(), &preview.request)))
        }
        (test_send(app, &request))
    }
}

fn test_send(app: &AppKey, request: &str) -> Markup {
    html! {
        section class="card" aria-labelledby="test" {
            h2 id="test" { "Try it on one device first" }
            form class="filter" method="post" action="/compose/test" {
                input type="hidden" name="app" value=(app);
                input type="hidden" name="request" value=(request);
                div class="field" { label for="client" { "Client id" } input id="client" name="client" autocomplete="off" required maxlength="128"; }
                button class="quiet" { "Send to it only" }
            }
        }
    }
}
