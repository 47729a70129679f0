//! The page before all others.

use maud::{Markup, html};

use super::layout::brand;

/// The form, with the reason if an earlier try failed.
pub(crate) fn view(error: Option<&str>) -> Markup {
    html! {
        div class="gate card" {
            p { (brand()) }
            h1 { "Sign in" }
            @if let Some(error) = error { p class="note bad" role="alert" { (error) } }
            form class="stack" method="post" action="/sign-in" {
                div class="field" {
                    label for="key" { "Admin key" }
                    input id="key" name="key" type="password" autocomplete="current-password" required autofocus maxlength="128";
                }
                div class="actions" { button { "Sign in" } }
            }
            p class="hint" { "Made on the machine of the service with " code { "pushctl admin-key add NAME --role ROLE" } "." }
        }
    }
}
