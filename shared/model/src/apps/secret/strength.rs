//! Estimates from the text of a secret if it can be guessed.
//!
//! The estimate is the length of a description of the text: what repeats an earlier part of it, or
//! a part of [`COMMON`], costs only the bits that say which part; each other character costs the
//! bits of its alphabet. So it sees repetition, sequences, rows of the keyboard and a few words that
//! stand in most lists. It is no dictionary: a sentence of other words passes, though it has less
//! than it seems to.

/// A secret with fewer bits is weak: 128, with room for what repeats by chance in random text.
const MIN_BITS: f64 = 112.0;
/// A secret with fewer different characters is weak. 40 random digits seldom have fewer than 8.
const MIN_DIFFERENT: usize = 6;
/// A shorter repetition is not one: it happens by chance.
const MIN_REPEATED: usize = 4;
/// The bits that say how long a repetition is.
const LENGTH_BITS: f64 = 3.0;
/// Texts that an attacker tries first, in lower case.
const COMMON: &str = "abcdefghijklmnopqrstuvwxyz 01234567890123456789abcdef \
    zyxwvutsrqponmlkjihgfedcba fedcba9876543210 qwertyuiop asdfghjkl zxcvbnm qwertzuiop \
    1qaz2wsx3edc4rfv5tgb6yhn !@#$%^&*() password passw0rd secret changeme admin letmein \
    welcome default example token push test";

/// Returns true if a text could evidently be guessed.
pub(super) fn is_weak(text: &str) -> bool {
    different(text.as_bytes()) < MIN_DIFFERENT || bits(text) < MIN_BITS
}

fn different(text: &[u8]) -> usize {
    let mut seen = [false; 256];
    text.iter().for_each(|&byte| seen[usize::from(byte)] = true);
    seen.iter().filter(|&&seen| seen).count()
}

fn bits(text: &str) -> f64 {
    let of_character = alphabet(text.as_bytes()).log2();
    let known = COMMON.len();
    let all = [COMMON.as_bytes(), &text.to_ascii_lowercase().into_bytes()].concat();
    let (mut at, mut bits) = (known, 0.0);
    while at < all.len() {
        // Where a repetition begins is one of `at` positions.
        let of_repetition = f64::from(u32::try_from(at).unwrap_or(u32::MAX)).log2() + LENGTH_BITS;
        match longest_repetition(&all, at) {
            length if length >= MIN_REPEATED => {
                // A short one may be cheaper written out.
                let written = of_character * f64::from(u32::try_from(length).unwrap_or(u32::MAX));
                bits += of_repetition.min(written);
                at += length;
            }
            _ => {
                bits += of_character;
                at += 1;
            }
        }
    }
    bits
}

/// Returns how many bytes from `at` on also stand at an earlier position. The two may overlap, as
/// in a run of one character.
fn longest_repetition(text: &[u8], at: usize) -> usize {
    let common = |from: usize| text[from..].iter().zip(&text[at..]).take_while(|(a, b)| a == b);
    (0..at).map(|from| common(from).count()).max().unwrap_or_default()
}

/// Returns how many characters the text seems to be chosen from.
fn alphabet(text: &[u8]) -> f64 {
    let has = |kind: fn(&u8) -> bool| text.iter().any(kind);
    let letters = |hex: bool, any: bool| match (hex, any) {
        (_, true) => 26.0,
        (true, false) => 6.0,
        (false, false) => 0.0,
    };
    let digits = if has(u8::is_ascii_digit) { 10.0 } else { 0.0 };
    let lower = letters(
        has(|b| matches!(b, b'a'..=b'f')),
        has(|b| b.is_ascii_lowercase() && !matches!(b, b'a'..=b'f')),
    );
    let upper = letters(
        has(|b| matches!(b, b'A'..=b'F')),
        has(|b| b.is_ascii_uppercase() && !matches!(b, b'A'..=b'F')),
    );
    let mut others: Vec<u8> = text.iter().copied().filter(|b| !b.is_ascii_alphanumeric()).collect();
    others.sort_unstable();
    others.dedup();
    let others = f64::from(u32::try_from(others.len()).unwrap_or(u32::MAX));
    f64::max(digits + lower + upper + others, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::{Secret, random};

    #[test]
    fn what_repeats_itself_or_is_tried_first_is_weak() {
        for weak in [
            "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "abababababababababababababababab",
            "0123456789abcdef0123456789abcdef",
            "0123456789abcdefghijklmnopqrstuvwxyz",
            "fedcba98765432100123456789abcdef",
            "password-password-password-password",
            "Password1!Password1!Password1!Password1!",
            "qwertyuiopasdfghjklzxcvbnm1234567890",
            "ChangeMeChangeMeChangeMeChangeMe",
            "8a!Kp2zQ8a!Kp2zQ8a!Kp2zQ8a!Kp2zQ8a!Kp2zQ",
            "01100101110010100110101011100101",
            "31415926535897932384626433832795",
            "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccddddddddddddddddeeee",
        ] {
            assert!(is_weak(weak), "{weak}: {}", bits(weak));
        }
    }

    #[test]
    fn random_text_of_128_bits_is_not_weak_in_any_usual_form() {
        for _ in 0..200 {
            let bytes = random::<16>();
            let base64 = |bytes: &[u8]| {
                use base64::Engine as _;
                base64::engine::general_purpose::STANDARD.encode(bytes)
            };
            let decimal: String =
                random::<40>().iter().map(|b| char::from(b'0' + b % 10)).collect();
            let forms = [
                hex::encode(bytes),
                hex::encode_upper(bytes),
                uuid::Uuid::new_v8(bytes).to_string(),
                base64(&random::<24>()),
                decimal,
                Secret::generate().expose().to_owned(),
            ];
            for text in forms {
                assert!(!is_weak(&text), "{text}: {}", bits(&text));
            }
        }
    }
}
