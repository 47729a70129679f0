//! Headers for the collector, as one setting: `name=value,name=value`, the form that all
//! OpenTelemetry programs take. A value may be percent-encoded, so that it can have a comma.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use percent_encoding::percent_decode_str;

/// The headers that route and delimit the request, which cannot be set.
const OF_THE_REQUEST: [HeaderName; 6] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
];

/// Reads the setting.
///
/// # Errors
/// Says what the value must be, without repeating it.
pub(super) fn headers(text: &str) -> Result<HeaderMap, String> {
    let wrong = || "must be name=value, or several of these with commas between them".to_owned();
    let mut headers = HeaderMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
        let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
        if let Some(name) = OF_THE_REQUEST.iter().find(|of_the_request| **of_the_request == name) {
            return Err(format!("must not have {name}, which each request has of its own"));
        }
        let value: Vec<u8> = percent_decode_str(value.trim()).collect();
        let mut value = HeaderValue::from_bytes(&value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_headers_are_separated_by_commas_and_a_value_may_be_encoded() {
        let read = headers("x-token = hunter2, authorization=Basic%20a%2Cb=,").unwrap();
        assert_eq!(read["x-token"], "hunter2");
        assert_eq!(read["authorization"], "Basic a,b=");
        assert!(headers("").unwrap().is_empty());
    }

    #[test]
    fn what_frames_a_request_is_not_replaced() {
        for name in ["Content-Length", "host", "transfer-encoding"] {
            let error = headers(&format!("x-token=hunter2,{name}=5")).unwrap_err();
            assert!(error.contains("must not have") && !error.contains("hunter"), "{error}");
        }
    }

    #[test]
    fn an_error_repeats_nothing_of_the_setting() {
        for wrong in ["hunter2", "hunter 2=x", "x=hunter2%0a", "=hunter2"] {
            let error = headers(wrong).unwrap_err();
            assert!(error.contains("name=value") && !error.contains("hunter"), "{error}");
        }
    }
}
