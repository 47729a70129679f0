//! Numbers in LEB128: seven bits a byte, the lowest first, and the highest bit set in all bytes but
//! the last.

use super::BadRecord;

/// Appends a number.
pub fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads a number, and returns it with the bytes after it.
///
/// # Errors
/// If the bytes do not begin with a number of at most 64 bits.
pub fn read(bytes: &[u8]) -> Result<(u64, &[u8]), BadRecord> {
    let (mut number, mut rest) = (0_u64, bytes);
    for shift in (0..70).step_by(7) {
        let (byte, behind) = rest.split_first().ok_or(BadRecord)?;
        rest = behind;
        let bits = u64::from(byte & 0x7f);
        let shifted = bits << shift;
        if shifted >> shift != bits {
            return Err(BadRecord);
        }
        number |= shifted;
        if byte & 0x80 == 0 {
            return Ok((number, rest));
        }
    }
    Err(BadRecord)
}
