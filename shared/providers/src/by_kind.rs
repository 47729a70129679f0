//! The providers by the kind of a transport, and the functions that `ingest`, imports and exports need, by the kind of a transport. A
//! transport without a provider (MQTT, `discard`) takes any token, needs none, and carries every message.

use std::borrow::Cow;

use push_model::device::{BadDevice, Device, TransportKind};
use ring::rand::SecureRandom;

use crate::{BadToken, Provider, TooLarge, content::Content};

/// Evaluates one expression with the type of the provider of a transport, or the other one if it has none: the
/// only list of the providers.
#[macro_export]
macro_rules! with_provider {
    ($kind:expr, $provider:ident => $with:expr, else $without:expr $(,)?) => {
        match $kind {
            ::push_model::device::TransportKind::Fcm => {
                type $provider = $crate::fcm::Fcm;
                $with
            }
            ::push_model::device::TransportKind::Apns => {
                type $provider = $crate::apns::Apns;
                $with
            }
            ::push_model::device::TransportKind::Webpush => {
                type $provider = $crate::webpush::WebPush;
                $with
            }
            ::push_model::device::TransportKind::Webhook => {
                type $provider = $crate::webhook::Webhook;
                $with
            }
            ::push_model::device::TransportKind::Mqtt
            | ::push_model::device::TransportKind::Discard => $without,
        }
    };
}

/// Checks the token of a registration by the provider of its transport, and returns the form in which the
/// index keeps it.
///
/// # Errors
/// If no device of this transport can have it, or it is missing where the transport needs one; the error
/// says what is expected.
pub fn stored_token<'a>(
    kind: TransportKind,
    token: Option<&'a str>,
    random: &dyn SecureRandom,
) -> Result<Option<Cow<'a, str>>, BadToken> {
    with_provider!(kind,
        P => P::stored(token.unwrap_or_default(), random).map(Some),
        else Ok(token.map(Cow::Borrowed)),
    )
}

/// Writes a stored token as a device registers it.
pub fn shown_token(kind: TransportKind, stored: &str) -> Cow<'_, str> {
    with_provider!(kind, P => P::shown(stored), else Cow::Borrowed(stored))
}

/// Checks that the devices of a transport can get a message, whatever the account of their app.
///
/// # Errors
/// If it is too large for the provider.
pub fn check_size(kind: TransportKind, content: &Content<'_>) -> Result<(), TooLarge> {
    with_provider!(kind, P => P::message(content, None).map(|_| ()), else Ok(()))
}

/// Returns a device as the index keeps it, of one whose fields were checked.
///
/// # Errors
/// If its token is not one of its transport ([`stored_token`]).
pub fn stored_device(mut device: Device, random: &dyn SecureRandom) -> Result<Device, BadDevice> {
    let stored = stored_token(device.transport, device.token.as_deref(), random);
    let stored = stored.map_err(|BadToken { expected }| {
        let problem = format!("{expected}, because transport is {}", device.transport.name());
        BadDevice { field: "token", problem }
    })?;
    // Most forms are as they were registered.
    if let Some(Cow::Owned(token)) = stored {
        device.token = Some(token.into());
    }
    Ok(device)
}

/// Returns a device as it registered, of one as the index keeps it.
pub fn shown_device(mut device: Device) -> Device {
    let shown = device.token.as_deref().map(|token| shown_token(device.transport, token));
    if let Some(Cow::Owned(token)) = shown {
        device.token = Some(token.into());
    }
    device
}

#[cfg(test)]
mod tests {
    use push_model::attributes::Attributes;
    use ring::rand::SystemRandom;

    use super::*;
    use crate::testing::{payload, tokens};

    fn device(transport: TransportKind, token: Option<&str>) -> Device {
        let client_id = "c1".parse().unwrap();
        let attributes = Attributes::default();
        Device {
            client_id,
            attributes,
            transport,
            token: token.map(Into::into),
            profile: push_model::profile::Profile::default(),
        }
    }

    fn stored(transport: TransportKind, token: Option<&str>) -> Result<Device, BadDevice> {
        stored_device(device(transport, token), &SystemRandom::new())
    }

    #[test]
    fn a_token_comes_back_as_it_was_registered() {
        for (kind, token) in tokens() {
            let stored = stored(kind, Some(token)).unwrap();
            assert_eq!(shown_device(stored).token.as_deref(), Some(token), "{}", kind.name());
        }
        let (_, webpush) = tokens().find(|(kind, _)| *kind == TransportKind::Webpush).unwrap();
        let stored = stored(TransportKind::Webpush, Some(webpush)).unwrap();
        assert!(stored.token.unwrap().len() < webpush.len(), "the index keeps a shorter form");
    }

    #[test]
    fn a_transport_with_a_provider_needs_a_token_of_its_form_and_the_others_take_any_or_none() {
        for kind in TransportKind::ALL {
            let [none, other] = [None, Some("\u{e9}")].map(|token| stored(kind, token));
            if kind.has_provider() {
                let BadDevice { field, problem } = none.unwrap_err();
                assert_eq!(field, "token");
                assert!(problem.starts_with("must "), "{problem}");
                assert!(problem.ends_with(&format!("because transport is {}", kind.name())));
                assert_eq!(other.is_ok(), kind == TransportKind::Webhook, "{}", kind.name());
            } else {
                assert_eq!(none.unwrap().token, None);
                assert_eq!(other.unwrap().token.as_deref(), Some("\u{e9}"));
            }
        }
    }

    #[test]
    fn a_device_whose_stored_token_is_damaged_is_shown_with_it() {
        let damaged = device(TransportKind::Webpush, Some("?"));
        assert_eq!(shown_device(damaged.clone()), damaged);
    }

    #[test]
    fn a_message_is_too_large_for_some_providers_and_carried_by_others() {
        let carried_by = |len: usize| {
            let payload = payload(2, &format!(r#""data":{{"k":"{}"}}"#, "x".repeat(len)));
            let content = Content::read(&payload).unwrap();
            let carries = |kind: &TransportKind| check_size(*kind, &content).is_ok();
            TransportKind::ALL.into_iter().filter(carries).collect::<Vec<_>>()
        };
        assert_eq!(carried_by(100), TransportKind::ALL);
        for (len, kind) in [(5_000, TransportKind::Webhook), (20_000, TransportKind::Mqtt)] {
            assert!(carried_by(len).contains(&kind), "{len}");
        }
        for (len, kind) in [(5_000, TransportKind::Fcm), (20_000, TransportKind::Webhook)] {
            assert!(!carried_by(len).contains(&kind), "{len}");
        }
    }
}
