//! The frame of every page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::assets;

/// A page's place in the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Now,
    Messages,
    Compose,
    Devices,
    DeadLetters,
    Apps,
    Audit,
    TryIt,
}

impl Section {
    const ALL: [(Self, &'static str, &'static str); 8] = [
        (Self::Now, "/", "Now"),
        (Self::Messages, "/messages", "Messages"),
        (Self::Compose, "/compose", "Compose"),
        (Self::Devices, "/devices", "Devices"),
        (Self::DeadLetters, "/dead-letters", "Dead letters"),
        (Self::Apps, "/apps", "Apps"),
        (Self::Audit, "/audit", "Audit"),
        (Self::TryIt, "/try-it", "Try it here"),
    ];
}

/// The person who is signed in, as the frame shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) name: &'a str,
    pub(crate) role: &'a str,
}

/// htmx writes no style element and evaluates no code: the page's policy forbids both.
const HTMX: &str = r#"{"includeIndicatorCSS":false,"defaultTimeout":20000,"history":false}"#;

/// Wraps a page of someone who is signed in.
pub(crate) fn page(title: &str, section: Section, reader: Reader<'_>, content: &Markup) -> Markup {
    let header = html! {
        header class="top" {
            div {
                (brand())
                nav aria-label="Pages" {
                    ul {
                        @for (of, path, name) in Section::ALL {
                            li {
                                a href=(path) aria-current=[(of == section).then_some("page")] { (name) }
                            }
                        }
                    }
                }
                div class="who" {
                    span { (reader.name) " · " (reader.role) }
                    form method="post" action="/sign-out" {
                        button class="quiet small" { "Sign out" }
                    }
                }
            }
        }
    };
    document(
        title,
        &html! {
            a class="skip" href="#main" { "Skip to the page" }
            (header)
            main id="main" tabindex="-1" { (content) }
            footer { "Push Message Service " (env!("CARGO_PKG_VERSION")) }
        },
    )
}

/// Wraps a page of someone who is not signed in.
pub(crate) fn outside(title: &str, content: &Markup) -> Markup {
    document(title, &html! { main id="main" { (content) } })
}

fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="htmx-config" content=(HTMX);
                meta name="referrer" content="no-referrer";
                title { (title) " · Push" }
                link rel="icon" href=(assets::path("icon.svg")) type="image/svg+xml";
                link rel="stylesheet" href=(assets::path("console.css"));
                script defer src=(assets::path("htmx.min.js")) {}
                script defer src=(assets::path("hx-sse.min.js")) {}
                script defer src=(assets::path("console.js")) {}
            }
            body { (body) }
        }
    }
}

pub(crate) fn brand() -> Markup {
    html! { a class="brand" href="/" { (PreEscaped(include_str!("../../assets/icon.svg"))) "Push" } }
}
