//! Load generators, and the clients that they use.
//!
//! - `producer`: an app's credentials and connections of one request at a time; `pushes`: the
//!   bodies
//! - `wrk`: as many requests as many connections can send; `paced`: pushes at a given rate
//! - `attacks`: what a hostile app and a stranger send
//! - `broadcasts`: one broadcast from the POST to its end
//! - `phone_provider`: a server that plays FCM or a Web Push service
//! - `mqtt_device`: MQTT devices that receive; `embedded_broker`: the broker of `pushctl
//!   standalone` for them
//! - `viewers`: people who watch the console

pub(crate) mod attacks;
pub(crate) mod broadcasts;
pub(crate) mod embedded_broker;
pub(crate) mod mqtt_device;
pub(crate) mod paced;
pub(crate) mod phone_provider;
pub(crate) mod producer;
pub(crate) mod pushes;
pub(crate) mod viewers;
pub(crate) mod wrk;

pub(crate) use self::producer::Producer;
