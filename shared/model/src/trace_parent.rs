//! The place of a message in a distributed trace, as W3C Trace Context writes it in the header
//! `traceparent` (<https://www.w3.org/TR/trace-context/>, section 3.2).
//!
//! The header comes from outside, so it is read strictly and within a fixed length. A header that
//! does not follow the specification counts as absent, as the specification demands. A job has this
//! text as a field only if its trace is sampled, which saves 55 bytes in every other push.

use std::fmt;

use serde::{Serialize, Serializer};

/// The length of the text in bytes. Later versions may be longer, and begin with the same fields.
const LENGTH: usize = 55;

/// Set in the flags if the caller samples the trace.
const SAMPLED: u8 = 1;

/// A span of a trace, which the spans of a message follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    /// The trace. Never all zero.
    pub trace_id: [u8; 16],
    /// The span in it. Never all zero.
    pub span_id: [u8; 8],
    /// True if the trace is sampled.
    pub sampled: bool,
}

impl TraceParent {
    /// Reads `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`; none if it is no such text.
    /// Reads the fields of version 00 from a later version, too.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (known, more) = text.split_at_checked(LENGTH)?;
        let [version] = hex_at(known, 0)?;
        let is_whole = more.is_empty() || (version > 0 && more[0] == b'-');
        let dashes = [2, 35, 52].iter().all(|&at| known[at] == b'-');
        if version == 0xff || !is_whole || !dashes {
            return None;
        }
        let (trace_id, span_id): ([u8; 16], [u8; 8]) = (hex_at(known, 3)?, hex_at(known, 36)?);
        let [flags] = hex_at(known, 53)?;
        if trace_id == [0; 16] || span_id == [0; 8] {
            return None;
        }
        Some(Self { trace_id, span_id, sampled: flags & SAMPLED != 0 })
    }
}

/// The bytes whose lower-case hexadecimal digits begin at this place; none if they are none.
fn hex_at<const N: usize>(text: &[u8], at: usize) -> Option<[u8; N]> {
    let digits = text.get(at..at + 2 * N)?;
    let mut bytes = [0; N];
    // The crate reads capitals as well, which the specification forbids.
    let is_lower = !digits.iter().any(u8::is_ascii_uppercase);
    (is_lower && hex::decode_to_slice(digits, &mut bytes).is_ok()).then_some(bytes)
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.span_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-{:02x}", u8::from(self.sampled))
    }
}

impl Serialize for TraceParent {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// As a field of a job: what cannot be read counts as absent, because no push is worth less without
/// its trace.
pub(crate) mod lenient {
    use serde::{Deserialize, Deserializer};

    use super::TraceParent;
    use crate::text::Text;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<TraceParent>, D::Error> {
        let text = Option::<Text<'_>>::deserialize(from)?;
        Ok(text.and_then(|text| TraceParent::parse(text.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parse(text: &str) -> Option<TraceParent> {
        TraceParent::parse(text.as_bytes())
    }

    #[test]
    fn the_example_of_the_specification_is_read_and_written_the_same() {
        let parent = parse(TEXT).unwrap();
        assert_eq!(parent.trace_id[..2], [0x4b, 0xf9]);
        assert_eq!((parent.span_id[7], parent.sampled), (0xb7, true));
        assert_eq!(parent.to_string(), TEXT);
        assert_eq!(serde_json::to_string(&parent).unwrap(), format!("{TEXT:?}"));
    }

    #[test]
    fn of_the_flags_only_sampled_counts() {
        for (flags, sampled) in [("00", false), ("02", false), ("03", true), ("ff", true)] {
            let text = TEXT.replace("-01", &format!("-{flags}"));
            assert_eq!(parse(&text).unwrap().sampled, sampled, "{flags}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let later = TEXT.replacen("00", "cc", 1);
        assert_eq!(parse(&later), parse(TEXT));
        assert_eq!(parse(&format!("{later}-what-the-future-brings")), parse(TEXT));
        assert_eq!(parse(&format!("{later}.x")), None);
    }

    #[test]
    fn what_does_not_follow_the_specification_counts_as_absent() {
        for wrong in [
            String::new(),
            TEXT[..54].to_owned(),
            format!("{TEXT}-"),
            format!("{TEXT}0"),
            TEXT.replacen("00", "ff", 1),
            TEXT.replacen("00", "0x", 1),
            TEXT.replacen("4bf9", "4BF9", 1),
            TEXT.replacen("4bf9", "4bg9", 1),
            TEXT.replacen('-', "_", 1),
            TEXT.replace("-01", "-0x"),
            TEXT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            TEXT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            format!(" {}", &TEXT[..54]),
            TEXT.replacen("4b", "é", 1),
        ] {
            assert_eq!(parse(&wrong), None, "{wrong:?}");
        }
    }
}
