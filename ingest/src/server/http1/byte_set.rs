//! Which bytes may stand in a part of a head.

/// A set of bytes. A look-up is one load: every byte of the target and of `Host` is looked up with
/// every request.
pub(super) struct ByteSet([bool; 256]);

impl ByteSet {
    /// All ASCII letters and digits, and these bytes.
    pub(super) const fn alphanumeric_and(others: &[u8]) -> Self {
        let mut set = [false; 256];
        let mut byte = 0;
        while byte < set.len() {
            set[byte] = (byte as u8).is_ascii_alphanumeric();
            byte += 1;
        }
        let mut other = 0;
        while other < others.len() {
            set[others[other] as usize] = true;
            other += 1;
        }
        Self(set)
    }

    pub(super) const fn contains(&self, byte: u8) -> bool {
        self.0[byte as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_letters_digits_and_what_it_was_given() {
        let set = ByteSet::alphanumeric_and(b"-\xff");
        for byte in 0..=u8::MAX {
            let expected = byte.is_ascii_alphanumeric() || byte == b'-' || byte == 0xff;
            assert_eq!(set.contains(byte), expected, "{byte}");
        }
    }
}
