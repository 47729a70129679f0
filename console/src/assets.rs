//! Style sheet, scripts and pictures, inside the program. Their names hold a digest of their content, so a
//! browser keeps them for good and never mixes two versions.

use std::{
    io::{self, Write as _},
    sync::LazyLock,
};

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
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
        "push.mjs",
        "text/javascript; charset=utf-8",
        include_bytes!("../../clients/javascript/push.mjs"),
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

/// The files, compressed with gzip, in the same order.
static COMPRESSED: LazyLock<Vec<Bytes>> = LazyLock::new(|| {
    FILES.iter().map(|(_, _, content)| compressed(content).unwrap_or_default().into()).collect()
});

fn compressed(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    encoder.finish()
}

/// Answers a request for a file; compressed if the client takes gzip.
pub(crate) fn answer(version: &str, name: &str, request: &HeaderMap) -> Response {
    let files = FILES.iter().zip(COMPRESSED.iter());
    let mut named = files.filter(|(file, _)| file.0 == name && version == *VERSION);
    let Some(((_, media_type, content), compressed)) = named.next() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, *media_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::VARY, "accept-encoding"),
    ];
    if takes_gzip(request) && !compressed.is_empty() {
        return (headers, [(header::CONTENT_ENCODING, "gzip")], compressed.clone()).into_response();
    }
    (headers, *content).into_response()
}

fn takes_gzip(request: &HeaderMap) -> bool {
    let accepted = request.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let mut codings = accepted.unwrap_or_default().split(',').map(str::trim);
    codings.any(|coding| coding == "gzip" || coding.starts_with("gzip;q=1"))
}
