//! Pages.
pub(crate) mod apps;
pub(crate) mod audit;
pub(crate) mod compose;
pub(crate) mod dead;
pub(crate) mod devices;
pub(crate) mod layout;
pub(crate) mod message;
pub(crate) mod messages;
pub(crate) mod now;
pub(crate) mod parts;
pub(crate) mod sign_in;
pub(crate) mod try_it;
pub(crate) mod words;
