//! Operator use cases: what `pushctl` does with apps, devices, messages, dead letters and backups,
//! and the checks of the doctor.
//!
//! A use case is a function that takes an open store and returns a value. Values serialise to one JSON
//! form. Long work reports progress as typed events to a callback. Nothing here prints, reads a
//! command line or knows a terminal, so that another front end than `pushctl` can use it. A
//! function that changes something takes the [`audit::Actor`] who does it, and appends the change to
//! the audit trail. Devices are registered, removed and imported without that, because the trail would be full of
//! them; callers of the admin API, who are people, have forms of these functions that do.
//!
//! - `app`: apps, their limits and secrets
//! - `device`: devices of an app, their logins, import and export
//! - `message`: ledgers of messages, watching and recalling
//! - `dead`: dead letters
//! - `keys`: the keys that sign the MQTT logins of devices
//! - `transfer`: backing up, restoring and moving apps
//! - `doctor`: checks of a deployment
//! - `audit`: the audit trail
//! - `admin_key`: the keys of the admin API
//! - `status`: what waits in the queue, and the broadcasts in work
//! - `page`: pages of lists that belong to no app
//! - `refusal`: why a use case was not done
//! - `components`: running programs, and what failed of their work
//! - `access`: the commands that let the service in where RabbitMQ refuses it
//! - `input`: reads an input line by line in bounded memory
//! - `server`: the URL of an HTTP server
//! - `client`: the calls of one app to such a server
//! - `profile`: server and secret of later commands

pub mod access;
pub mod admin_key;
pub mod app;
pub mod audit;
pub mod client;
pub mod components;
pub mod dead;
pub mod device;
pub mod doctor;
pub mod input;
pub mod keys;
pub mod message;
pub mod page;
pub mod profile;
pub mod refusal;
pub mod server;
pub mod status;
pub mod transfer;
