//! Attacks of a hostile tenant, device or unauthenticated client on the others, each in a bounded form,
//! and the service that well-behaved clients get meanwhile.
//!
//! Attacks that need no real servers, or the same as another suite, are repeated there:
//!
//! | attack | where | test |
//! |---|---|---|
//! | more open files than a container may have | `tests/deploy` | `test_every_service_has_limits_of_its_own_and_no_more_rights_than_it_needs` |
//! | other users who read the databases | suite `pushctl` | `databases_are_made_for_their_owner_only_whatever_the_umask` |
//! | other users who read the device keys | suite `pushctl` | `doctor_warns_of_device_keys_that_other_users_can_read` |
//! | a disk that is full | suite `pushctl` | `on_a_full_disk_the_service_is_not_ready_and_is_again_when_there_is_room` |
//! | a server that redirects a push and its secret | suite `pushctl` | `a_push_follows_no_redirect_and_says_where_it_points` |
//! | a secret that can be guessed | suite `pushctl` | `a_secret_of_the_operators_own_must_not_be_guessable` |
//! | no host, several, or one that is none | suite `ingest` | `a_request_that_two_readers_may_read_differently_is_refused` |
//! | slow in each phase of a request | suite `ingest` | `slow_and_silent_clients_are_answered_or_ended_and_hold_no_other_client_up` |
//! | the time that a failed login takes | `ingest` | `when_a_failed_login_is_answered_does_not_tell_whether_the_app_exists` |
//! | idle connections to the operations listener | `push-boot` | `connections_that_lie_idle_keep_no_other_from_its_answer` |
//! | slow readers at the operations listener | `push-boot` | `clients_that_read_slowly_leave_room_for_a_probe_that_takes_its_time` |
//!
//! `docs/contributing/attacks.md` describes the attacks that were tried on a larger scale, and their results.

mod audit_log;
mod broker_logins;
mod connections;
mod credentials;
mod dictionaries;
mod displacement;
mod embedded_broker;
mod evictions;
mod frames;
mod http2;
mod http2_memory;
mod log;
mod proxies;
mod quotas;
mod removed_devices;
mod secrets;
mod standalone;
mod tenants;
mod texts;

use push_test_service as support;
