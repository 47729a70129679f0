//! Answers what could not be done with a page that says why.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use maud::html;
use push_operator::refusal::Refusal;

use crate::{access::Refused, pages::layout};

/// Something that was not done.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    text: String,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self { status: refused.status(), text: refused.message() }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Refused::UseCase(error).into()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        anyhow::Error::from(refusal).into()
    }
}

impl From<push_store::IndexError> for Failure {
    fn from(error: push_store::IndexError) -> Self {
        anyhow::Error::from(error).into()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let title = match self.status {
            StatusCode::NOT_FOUND | StatusCode::MISDIRECTED_REQUEST => "Not here",
            StatusCode::FORBIDDEN => "Not allowed",
            StatusCode::SERVICE_UNAVAILABLE => "Not now",
            _ => "Not done",
        };
        let content = html! {
            div class="gate card" {
                h1 { (title) }
                p class="note bad" role="alert" { (self.text) }
                p { a href="/" { "Go to the first page" } }
            }
        };
        (self.status, layout::outside(title, &content)).into_response()
    }
}
