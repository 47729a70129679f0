//! Encryption of a message for one device (RFC 8291), as one record of `aes128gcm` (RFC 8188).

use ring::{
    aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral},
    error::Unspecified,
    hkdf::{HKDF_SHA256, KeyType, Prk, Salt},
    rand::SecureRandom,
};

/// The bytes of an uncompressed point on P-256.
const POINT_LEN: usize = 65;
const SALT_LEN: usize = 16;
/// The size of a record: a body of this size is one that every push service takes (RFC 8030, section 7.2).
const RECORD_SIZE: u32 = 4096;
/// Salt, record size, length of the key, key.
const HEADER_LEN: usize = SALT_LEN + 4 + 1 + POINT_LEN;
/// Ends the plaintext of the last record.
const LAST_RECORD: u8 = 2;

/// The bytes by which an encrypted message is longer: header, end of record, tag.
pub(super) const OVERHEAD: usize = HEADER_LEN + 1 + 16;

/// The reason for which a message could not be encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotEncrypted {
    /// There were no random bytes.
    Random,
    /// The device's key is not on the curve.
    DeviceKey,
}

/// Encrypts a message for a device, with a key and a salt of its own.
///
/// # Errors
/// If there are no random bytes, or the device's key is not on the curve.
pub(super) fn encrypt(
    plaintext: &[u8],
    device_key: &[u8; POINT_LEN],
    auth: &[u8; 16],
    random: &dyn SecureRandom,
) -> Result<Vec<u8>, NotEncrypted> {
    let no_random = |_: Unspecified| NotEncrypted::Random;
    let private = EphemeralPrivateKey::generate(&ECDH_P256, random).map_err(no_random)?;
    let public = private.compute_public_key().map_err(no_random)?;
    let mut salt = [0; SALT_LEN];
    random.fill(&mut salt).map_err(no_random)?;

    let mut body = Vec::with_capacity(OVERHEAD + plaintext.len());
    body.extend_from_slice(&salt);
    body.extend_from_slice(&RECORD_SIZE.to_be_bytes());
    body.push(POINT_LEN as u8);
    body.extend_from_slice(public.as_ref());
    body.extend_from_slice(plaintext);
    body.push(LAST_RECORD);

    let device = UnparsedPublicKey::new(&ECDH_P256, device_key);
    agree_ephemeral(private, &device, |shared| {
        let key_material = key_material(shared, auth, device_key, public.as_ref())?;
        seal(&mut body, &salt, &key_material)
    })
    .map_err(|_| NotEncrypted::DeviceKey)?
    .map_err(no_random)?;
    Ok(body)
}

/// Derives the input of RFC 8188 from the shared secret (RFC 8291, section 3.4).
fn key_material(
    shared: &[u8],
    auth: &[u8],
    device_key: &[u8],
    public: &[u8],
) -> Result<[u8; 32], Unspecified> {
    let prk = Salt::new(HKDF_SHA256, auth).extract(shared);
    expand(&prk, &[b"WebPush: info\0", device_key, public])
}

/// Encrypts everything behind the header in place and appends the tag (RFC 8188, section 2).
fn seal(body: &mut Vec<u8>, salt: &[u8], key_material: &[u8]) -> Result<(), Unspecified> {
    let prk = Salt::new(HKDF_SHA256, salt).extract(key_material);
    let key: [u8; 16] = expand(&prk, &[b"Content-Encoding: aes128gcm\0"])?;
    let nonce: [u8; NONCE_LEN] = expand(&prk, &[b"Content-Encoding: nonce\0"])?;
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key)?);
    let nonce = Nonce::assume_unique_for_key(nonce);
    let record = body.get_mut(HEADER_LEN..).ok_or(Unspecified)?;
    let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), record)?;
    body.extend_from_slice(tag.as_ref());
    Ok(())
}

/// A number of bytes that HKDF returns.
struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand<const N: usize>(prk: &Prk, info: &[&[u8]]) -> Result<[u8; N], Unspecified> {
    let mut out = [0; N];
    prk.expand(info, Bytes(N))?.fill(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;

    use ring::rand::SystemRandom;

    use super::{
        super::token::tests::{EXAMPLE_AUTH, EXAMPLE_KEY},
        *,
    };
    use crate::base64url::{decode, decode_array, encode};

    fn key() -> [u8; 65] {
        decode_array(EXAMPLE_KEY).unwrap()
    }

    fn auth() -> [u8; 16] {
        decode_array(EXAMPLE_AUTH).unwrap()
    }

    #[test]
    #[allow(deprecated, reason = "ring has no other source of bytes that a test can choose")]
    fn the_example_of_rfc_8291_is_encrypted_to_the_byte() {
        let private = decode("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw").unwrap();
        let salt = decode("DGv6ra1nlYgDCS1FRnbzlw").unwrap();
        let random = ring::test::rand::FixedSliceSequenceRandom {
            bytes: &[&private, &salt],
            current: UnsafeCell::new(0),
        };
        let body = encrypt(b"When I grow up, I want to be a watermelon", &key(), &auth(), &random);
        assert_eq!(
            encode(&body.unwrap()),
            "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6\
             TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4\
             a-fN"
        );
    }

    #[test]
    fn every_message_has_a_key_and_a_salt_of_its_own() {
        let random = SystemRandom::new();
        let one = encrypt(b"a", &key(), &auth(), &random).unwrap();
        let other = encrypt(b"a", &key(), &auth(), &random).unwrap();
        assert_eq!(one.len(), 1 + OVERHEAD);
        assert_ne!(one[..SALT_LEN], other[..SALT_LEN]);
        assert_ne!(one[SALT_LEN + 5..HEADER_LEN], other[SALT_LEN + 5..HEADER_LEN]);
    }

    #[test]
    fn a_key_that_is_not_on_the_curve_is_told_from_missing_random_bytes() {
        let mut wrong = key();
        wrong[64] ^= 1;
        let result = encrypt(b"a", &wrong, &auth(), &SystemRandom::new());
        assert_eq!(result, Err(NotEncrypted::DeviceKey));
    }
}
