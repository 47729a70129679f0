//! Style sheet, scripts and pictures, inside the program. Their names hold a digest of their content, so a
//! browser keeps them for good and never mixes two versions.

use std::{borrow::Cow, sync::LazyLock};

use axum::{
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest as _, Sha256};

/// The files: name, media type, content.
const FILES: [(&str, &str, &[u8]); 7] = [
    ("console.css", "text/css; charset=utf-8", include_bytes!("../assets/console.css")),
    ("console.js", "text/javascript; charset=utf-8", include_bytes!("../assets/console.js")),
    ("htmx.min.js", "text/javascript; charset=utf-8", include_bytes!("../assets/htmx.min.js")),
    ("hx-sse.min.js", "text/javascript; charset=utf-8", include_bytes!("../assets/hx-sse.min.js")),
    ("icon.svg", "image/svg+xml", include_bytes!("../assets/icon.svg")),
    ("try-it.js", "text/javascript; charset=utf-8", include_bytes!("../assets/try-it.js")),
    (
        "push.js",
        "text/javascript; charset=utf-8",
        include_bytes!("../../clients/javascript/push.js"),
    ),
];

/// A digest of all files.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let digest = FILES.iter().fold(Sha256::new(), |digest, (name, _, content)| {
        digest.chain_update(name).chain_update(content)
    });
    hex::encode(&digest.finalize()[..6])
});

/// Returns the path of a file.
pub(crate) fn path(name: &str) -> String {
    format!("/assets/{}/{name}", *VERSION)
}

/// Answers a request for a file.
pub(crate) fn answer(version: &str, name: &str) -> Response {
    let file = FILES.iter().find(|file| file.0 == name && version == *VERSION);
    let Some((_, media_type, content)) = file else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, *media_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    (headers, Cow::Borrowed(*content)).into_response()
}
