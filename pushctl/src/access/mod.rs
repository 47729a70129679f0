//! Who may do what: the keys that sign logins of devices and seal accounts, and the keys of the admin API.

pub mod admin_key;
pub mod key;
