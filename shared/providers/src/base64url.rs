//! Base64 with the alphabet of URLs (RFC 4648, section 5), written without padding and read with or
//! without it.

use base64::{
    Engine as _,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Writes bytes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    ENGINE.encode(bytes)
}

/// Appends bytes to a text.
pub(crate) fn encode_into(bytes: &[u8], text: &mut String) {
    ENGINE.encode_string(bytes, text);
}

/// Reads any number of bytes.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    ENGINE.decode(text).ok()
}

/// Reads exactly `N` bytes.
pub(crate) fn decode_array<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let len = ENGINE.decode_slice(text, &mut bytes).ok()?;
    (len == N).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_with_and_without_padding() {
        assert_eq!(encode(&[251, 255, 1, 2]), "-_8BAg");
        for text in ["-_8BAg", "-_8BAg=="] {
            assert_eq!(decode(text).unwrap(), [251, 255, 1, 2]);
            assert_eq!(decode_array(text), Some([251, 255, 1, 2]));
            assert_eq!(decode_array::<3>(text), None);
            assert_eq!(decode_array::<5>(text), None);
        }
        for bad in ["+/8BAg", "-_8BA", "é"] {
            assert_eq!(decode_array::<4>(bad), None, "{bad}");
        }
    }
}
