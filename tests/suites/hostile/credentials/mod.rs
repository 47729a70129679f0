//! Device credentials under attack, at brokers that ask `ingest`: tokens that are forged, expired,
//! another device's or no tokens at all; a device that wants more than its topic; and unauthenticated
//! clients that ask in a broker's place.
//!
//! - `asking`: the service, and how each broker asks it
//! - `logins`: who may connect; `topics`: what a client may read and send
//! - `refusals`: what a broker without the secret learns, and what is counted

mod asking;
mod logins;
mod refusals;
mod topics;

use std::time::Duration;

const SECRET: &str = "what-the-broker-proves-itself-with";
const WORKER_PASSWORD: &str = "what-the-workers-log-in-to-it-with";
const HOUR: Duration = Duration::from_secs(3600);
const DEVICE: &str = "news:phone:1";
const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
