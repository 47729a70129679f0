//! The parts of a device for which there was no room.

use push_model::{
    custom::{CustomId, Declarations},
    profile::{MAX_TOPICS, MAX_USER_DEVICES},
};

use crate::AttributeSet;

/// What of a device is stored as absent, because there was no room for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Absent {
    /// Built-in attributes for whose values the app's dictionaries have no room.
    pub attributes: AttributeSet,
    /// Custom attributes for whose values the app's dictionaries have no room.
    pub custom: Vec<CustomId>,
    /// The number of topics that are new to the app, which has as many as it may have.
    pub topics: usize,
    /// The number of topics beyond [`MAX_TOPICS`](push_model::profile::MAX_TOPICS).
    pub topics_beyond: usize,
    /// True if the user has [`MAX_USER_DEVICES`](push_model::profile::MAX_USER_DEVICES) others.
    pub user_id: bool,
}

impl Absent {
    /// Returns the names of the attributes for whose values the app's dictionaries have no room.
    pub fn attribute_names(&self, declared: &Declarations) -> Vec<String> {
        let built_in = self.attributes.iter().map(|attribute| attribute.name().to_owned());
        let own = self.custom.iter().filter_map(|id| declared.by_id(*id));
        built_in.chain(own.map(|declared| format!("attributes.{}", declared.name))).collect()
    }

    /// Returns what to say of it to the sender of the device.
    pub fn warnings(&self, declared: &Declarations) -> Vec<String> {
        let names = self.attribute_names(declared).into_iter();
        let mut warnings: Vec<String> = names
            .map(|name| {
                format!(
                    "{name} is stored as absent: the devices of this app have too many different values \
                     of it"
                )
            })
            .collect();
        let Self { topics, topics_beyond, user_id, .. } = self;
        if *topics > 0 {
            warnings.push(format!(
                "topics: {topics} of them are left out, because the devices of this app have as many \
                 different topics as they may have"
            ));
        }
        if *topics_beyond > 0 {
            warnings.push(format!(
                "topics: {topics_beyond} of them are left out: a device has at most {MAX_TOPICS}"
            ));
        }
        if *user_id {
            warnings.push(format!(
                "user_id is stored as absent: a user has at most {MAX_USER_DEVICES} devices"
            ));
        }
        warnings
    }

    /// Returns true if everything is stored.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl From<AttributeSet> for Absent {
    fn from(attributes: AttributeSet) -> Self {
        Self { attributes, ..Self::default() }
    }
}
