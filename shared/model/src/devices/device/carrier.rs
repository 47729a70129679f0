//! The carriers: what reaches the devices of a partition of a broadcast.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{TransportKind, subscription::push_service};

/// The lanes of Web Push.
const LANES: usize = 8;

/// The lanes that push services share by a hash of their origins come first.
const SHARED_LANES: u8 = 4;

/// The code of the second lane of Web Push. The first has the code of the transport.
const SECOND_LANE_CODE: u8 = 6;

/// The names of the lanes, as plans store them.
const LANE_NAMES: [&str; LANES] = [
    "webpush",
    "webpush-1",
    "webpush-2",
    "webpush-3",
    "webpush-4",
    "webpush-5",
    "webpush-6",
    "webpush-7",
];

/// Lanes of Web Push that one push service has for itself, each with its place behind the shared ones.
const FCM: u8 = SHARED_LANES;
const MOZILLA: u8 = SHARED_LANES + 1;
const APPLE: u8 = SHARED_LANES + 2;
const WINDOWS: u8 = SHARED_LANES + 3;

/// A transport and, for Web Push, one of its lanes.
///
/// The devices of most transports are behind one server, but those of Web Push are behind the push services of
/// their browsers, and one of these may be dead while the others work. A partition of a broadcast has devices
/// of one carrier, so that its devices do not wait for those of another one. The four large push services have lanes
/// of their own; all others share four lanes. A program computes the lane when a device registers, and the index
/// stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Carrier {
    kind: TransportKind,
    /// Less than [`LANES`], and 0 unless the transport is Web Push.
    lane: u8,
}

impl Carrier {
    /// The number of carriers.
    pub const COUNT: usize = TransportKind::ALL.len() + LANES - 1;

    /// Every carrier, those of a transport next to each other.
    pub const ALL: [Self; Self::COUNT] = Self::all();

    const fn all() -> [Self; Self::COUNT] {
        let mut all = [Self::first(TransportKind::Mqtt); Self::COUNT];
        let (mut place, mut number) = (0, 0);
        while number < TransportKind::ALL.len() {
            let mut carrier = Self::first(TransportKind::ALL[number]);
            all[place] = carrier;
            place += 1;
            while matches!(carrier.kind, TransportKind::Webpush)
                && (carrier.lane as usize) < LANES - 1
            {
                carrier.lane += 1;
                all[place] = carrier;
                place += 1;
            }
            number += 1;
        }
        all
    }

    /// The carrier of devices of this transport whose address does not matter: its only one, or its first lane.
    pub const fn first(kind: TransportKind) -> Self {
        Self { kind, lane: 0 }
    }

    /// The carrier that reaches a device of this transport with this token, in the form that the index keeps.
    pub fn of(kind: TransportKind, token: Option<&str>) -> Self {
        let lane = match kind {
            TransportKind::Webpush => token.and_then(push_service).map_or(0, |service| {
                if !service.has_tls() {
                    return service.hash() % SHARED_LANES;
                }
                match service.authority() {
                    "fcm.googleapis.com" => FCM,
                    "updates.push.services.mozilla.com" => MOZILLA,
                    "web.push.apple.com" => APPLE,
                    host if host.ends_with(".notify.windows.com") => WINDOWS,
                    _ => service.hash() % SHARED_LANES,
                }
            }),
            TransportKind::Mqtt
            | TransportKind::Fcm
            | TransportKind::Apns
            | TransportKind::Webhook
            | TransportKind::Discard => 0,
        };
        Self { kind, lane }
    }

    /// The transport.
    pub const fn kind(self) -> TransportKind {
        self.kind
    }

    /// The stored code, of four bits with one added to it.
    pub const fn code(self) -> u8 {
        match self.lane {
            0 => self.kind.code(),
            lane => SECOND_LANE_CODE + lane - 1,
        }
    }

    /// The carrier with this stored code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|carrier| carrier.code() == code)
    }

    /// The name in plans.
    fn name(self) -> &'static str {
        match self.kind {
            TransportKind::Webpush => LANE_NAMES[usize::from(self.lane) % LANES],
            kind => kind.name(),
        }
    }
}

impl From<TransportKind> for Carrier {
    fn from(kind: TransportKind) -> Self {
        Self::first(kind)
    }
}

impl Serialize for Carrier {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Carrier {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Name)
    }
}

/// Reads the name of a carrier.
struct Name;

impl de::Visitor<'_> for Name {
    type Value = Carrier;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a carrier")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Carrier, E> {
        let carrier = Carrier::ALL.into_iter().find(|carrier| carrier.name() == name);
        carrier.ok_or_else(|| E::invalid_value(de::Unexpected::Str(name), &self))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::device::subscription::KEYS_LEN;

    fn lane(beginning: &str, rest: &str) -> u8 {
        let stored = format!("{beginning}{}{rest}", "k".repeat(KEYS_LEN));
        let carrier = Carrier::of(TransportKind::Webpush, Some(&stored));
        assert_eq!(carrier.kind(), TransportKind::Webpush);
        carrier.lane
    }

    #[test]
    fn every_carrier_has_a_code_of_four_bits_and_a_name_of_its_own() {
        let codes: BTreeSet<_> = Carrier::ALL.map(Carrier::code).into();
        assert_eq!(codes.len(), Carrier::COUNT);
        assert!(codes.iter().all(|code| code + 1 < 16), "{codes:?}");
        for carrier in Carrier::ALL {
            assert_eq!(Carrier::from_code(carrier.code()), Some(carrier));
            let text = serde_json::to_string(&carrier).unwrap();
            assert_eq!(serde_json::from_str::<Carrier>(&text).unwrap(), carrier);
        }
        for kind in TransportKind::ALL {
            assert_eq!(Carrier::first(kind).code(), kind.code());
            assert_eq!(serde_json::to_value(Carrier::first(kind)).unwrap(), kind.name());
            assert!(Carrier::ALL.contains(&Carrier::first(kind)));
        }
        assert_eq!(Carrier::from_code(15), None);
        serde_json::from_str::<Carrier>("\"webpush-8\"").unwrap_err();
    }

    #[test]
    fn each_large_push_service_has_a_lane_of_its_own_however_its_endpoints_are_written() {
        assert_eq!([lane("f", "a:b"), lane("s", "fcm.googleapis.com/wp/a:b")], [FCM; 2]);
        assert_eq!(
            [lane("m", "gA"), lane("s", "updates.push.services.mozilla.com/v3")],
            [MOZILLA; 2]
        );
        assert_eq!([lane("a", "Q"), lane("s", "web.push.apple.com/Q")], [APPLE; 2]);
        assert_eq!(
            ["db5p", "wns2-par02p"].map(|host| lane("s", &format!("{host}.notify.windows.com/w"))),
            [WINDOWS; 2]
        );
    }

    #[test]
    fn other_push_services_share_the_other_lanes_and_each_keeps_its_own() {
        let lanes: BTreeSet<_> =
            (0..64).map(|n| lane("s", &format!("push{n}.example/up"))).collect();
        assert_eq!(lanes, (0..SHARED_LANES).collect());
        assert_eq!(lane("s", "ntfy.sh/a"), lane("s", "ntfy.sh/b"));
        for like in
            ["fcm.googleapis.com:8443/", "fcm.googleapis.com.example/", "notify.windows.com/"]
        {
            assert!(lane("s", like) < SHARED_LANES, "{like}");
        }
        assert!(lane("h", "fcm.googleapis.com/") < SHARED_LANES);
        // Stored with each device, so they must never change.
        let stored = ["ntfy.sh/a", "push.example/", "[::1]:9/"].map(|rest| lane("s", rest));
        assert_eq!(stored, [2, 0, 2]);
    }

    #[test]
    fn a_text_that_is_no_subscription_has_the_first_lane() {
        for text in ["", "s", "f\u{e9}\u{e9}", "xyz"] {
            let first = Carrier::first(TransportKind::Webpush);
            assert_eq!(Carrier::of(TransportKind::Webpush, Some(text)), first);
        }
        assert_eq!(
            Carrier::of(TransportKind::Fcm, Some("token")).code(),
            TransportKind::Fcm.code()
        );
    }
}
