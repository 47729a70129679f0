//! The ceiling of a broadcast over Web Push: the encryption of as many messages (RFC 8291) on every core, and
//! nothing else.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use ring::{
    aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral},
    error::Unspecified,
    hkdf::{HKDF_SHA256, KeyType, Prk, Salt},
    rand::{SecureRandom, SystemRandom},
};

use crate::measure::cpu_time::CpuMeter;

/// As long as the payload of [`crate::load::pushes::broadcast`], in bytes.
const PAYLOAD: usize = 260;

/// What the loop found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncryptionRate {
    /// Messages a second on all cores.
    pub(crate) rate: f64,
    /// Processor time of one, in microseconds.
    pub(crate) processor: f64,
}

/// Encrypts for this time on every core.
pub(crate) async fn measure(time: Duration) -> anyhow::Result<EncryptionRate> {
    tokio::task::spawn_blocking(move || encrypt_for(time)).await?
}

fn encrypt_for(time: Duration) -> anyhow::Result<EncryptionRate> {
    let random = SystemRandom::new();
    let fresh = || EphemeralPrivateKey::generate(&ECDH_P256, &random);
    let device = fresh().and_then(|key| key.compute_public_key());
    let Ok(device) = device else { bail!("no key can be made") };
    let (started, meter) = (Instant::now(), CpuMeter::start([std::process::id()]));
    let all = AtomicU64::new(0);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while started.elapsed() < time && encrypt(device.as_ref(), &random).is_ok() {
                    all.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let all = all.into_inner() as f64;
    let [processor] = meter.per_request(all).context("no processor times")?;
    Ok(EncryptionRate { rate: all / started.elapsed().as_secs_f64(), processor })
}

/// Encrypts one message, with a key and a salt of its own.
fn encrypt(device: &[u8], random: &dyn SecureRandom) -> Result<Vec<u8>, Unspecified> {
    let private = EphemeralPrivateKey::generate(&ECDH_P256, random)?;
    let public = private.compute_public_key()?;
    let mut salt = [0; 16];
    random.fill(&mut salt)?;
    let mut record = vec![b'x'; PAYLOAD];
    agree_ephemeral(private, &UnparsedPublicKey::new(&ECDH_P256, device), |shared| {
        let secret = Salt::new(HKDF_SHA256, &[7; 16]).extract(shared);
        let material: [u8; 32] = expand(&secret, &[b"WebPush: info\0", device, public.as_ref()])?;
        let content = Salt::new(HKDF_SHA256, &salt).extract(&material);
        let key: [u8; 16] = expand(&content, &[b"Content-Encoding: aes128gcm\0"])?;
        let nonce: [u8; NONCE_LEN] = expand(&content, &[b"Content-Encoding: nonce\0"])?;
        LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key)?).seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::empty(),
            &mut record,
        )
    })??;
    Ok([&salt[..], public.as_ref(), &record].concat())
}

struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand<const N: usize>(secret: &Prk, info: &[&[u8]]) -> Result<[u8; N], Unspecified> {
    let mut out = [0; N];
    secret.expand(info, Len(N))?.fill(&mut out)?;
    Ok(out)
}
