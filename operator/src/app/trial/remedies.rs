//! What to do about a provider's code, for a person. Pure.

use push_model::device::TransportKind;

/// For what may pass.
pub(super) const LATER: &str =
    "try again later; if that does not help, look at the server and the network";
/// For a credential that cannot be used.
pub(super) const SET_AGAIN: &str = "set the account again with `pushctl app transport set`";
/// For a device whose token is not one of its transport.
pub(super) const REGISTER: &str = "the device must register again, with a token of this transport";

/// What to do about an account that is not accepted.
pub(super) fn of_account(kind: TransportKind, code: &str) -> String {
    let text = match (kind, code) {
        (TransportKind::Fcm, "invalid_grant") => {
            "the key was deleted, or the clock of this machine is wrong: check the clock; else make a new key \
             in the Firebase console (Project settings, Service accounts) and set it"
        }
        (
            TransportKind::Fcm,
            "invalid_client"
            | "unauthorized_client"
            | "deleted_client"
            | "disabled_client"
            | "account_disabled",
        ) => {
            "the service account was deleted or disabled: enable it, or make a key of another one in the \
             Firebase console (Project settings, Service accounts) and set it"
        }
        (
            TransportKind::Fcm,
            "PERMISSION_DENIED" | "IAM_PERMISSION_DENIED" | "USER_PROJECT_DENIED",
        ) => {
            "give the service account the role Firebase Cloud Messaging API Admin in the project of the key"
        }
        (TransportKind::Fcm, "SERVICE_DISABLED") => {
            "enable the Firebase Cloud Messaging API of the project in the Google Cloud console"
        }
        (TransportKind::Fcm, "NOT_FOUND" | "CONSUMER_INVALID") => {
            "there is no such project: compare project_id in the key's file with the Firebase console"
        }
        (TransportKind::Fcm, "token_uri_redirects" | "token_refused" | "token_uri") => {
            "the key's file names another token_uri than Google's: download the file again and set it"
        }
        (TransportKind::Apns, "ExpiredProviderToken") => {
            "the clock of this machine is wrong by more than half an hour: set it"
        }
        (TransportKind::Apns, "InvalidProviderToken" | "UnrelatedKeyIdInToken" | "Forbidden") => {
            "the key was revoked, or --key-id and --team-id are not those of the .p8 file: compare them with \
             the Apple developer account (Keys) and set them again"
        }
        (TransportKind::Apns, "BadEnvironmentKeyInToken" | "BadEnvironmentKeyIdInToken") => {
            "the key is for the other environment: set the account again, with --sandbox or without it"
        }
        (TransportKind::Apns, "BadTopic" | "TopicDisallowed" | "MissingTopic") => {
            "the key may not send to this app: compare --topic with the bundle id, and --team-id with its team"
        }
        (TransportKind::Webhook, "disabled") => {
            "the receiver says that it is closed: open it, or set another URL"
        }
        (TransportKind::Webhook, "redirect") => {
            "redirects are not followed: set the URL that it redirects to"
        }
        _ => "set the account again; the provider's documentation says what the code means",
    };
    text.to_owned()
}

/// What to do about a device that is refused.
pub(super) fn of_device(kind: TransportKind, code: &str) -> String {
    let text = match (kind, code) {
        (TransportKind::Fcm, "SENDER_ID_MISMATCH") => {
            "its token belongs to another Firebase project: build the app with the google-services.json of \
             this one, or set the account of that project"
        }
        (TransportKind::Apns, "BadDeviceToken") => {
            "its token is none of this environment: a build from Xcode needs --sandbox, TestFlight and the App \
             Store do without"
        }
        (TransportKind::Apns, "DeviceTokenNotForTopic") => {
            "its token is of another app: compare --topic with the bundle id that the app was built with"
        }
        (TransportKind::Webhook, "refused" | "unknown_status") => {
            "the receiver says so in its answer: see its log"
        }
        (_, "payload_too_large") => {
            "this push service carries less than others: send shorter messages"
        }
        _ => REGISTER,
    };
    text.to_owned()
}

/// What to do about a message that is refused, or about an answer that does not fit.
pub(super) fn of_message(kind: TransportKind, code: &str) -> String {
    let text = match (kind, code) {
        (TransportKind::Webhook, "unauthorized" | "forbidden") => {
            "it must answer 2xx: compare its signing secret with the one that was printed when the webhook was \
             set, and its clock with this one"
        }
        (TransportKind::Webhook, "not_found" | "method_not_allowed") => {
            "it must answer 2xx to a POST: check the path of the URL"
        }
        (TransportKind::Webhook, _) => {
            "it must answer 2xx, to a `type` that it does not know too: see the log of the receiver"
        }
        _ => {
            "that is no answer of the provider's to a test: check --fcm-url, --apns-url and --outbound-proxy"
        }
    };
    text.to_owned()
}

/// What to do about an answer that a wrong account and a wrong device both cause.
pub(super) fn of_suspect(kind: TransportKind, code: &str) -> String {
    match kind {
        TransportKind::Webpush => {
            "its subscription was made with another key: subscribe again with the public \
                                   key that `pushctl app transport list` shows"
                .to_owned()
        }
        _ => of_account(kind, code),
    }
}
