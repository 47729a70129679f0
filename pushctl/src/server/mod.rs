//! The server of a command: the flags that name it, and the profiles that stand in for them.

mod flags;
pub mod profile;

pub(crate) use self::flags::{DATA_DIR, profile_file};
pub use self::flags::{PlaceArgs, ServerArgs};
