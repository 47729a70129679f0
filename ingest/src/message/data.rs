//! The key-value pairs of a data message.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use push_model::text::Text;
use serde::{Deserialize, Deserializer, de};

use super::json::illegal;
use crate::rejection::Rejection;

/// The most UTF-8 bytes of all keys and values together.
const MAX_BYTES: usize = 2048;

#[derive(Default)]
pub(super) struct DataPairs<'a>(BTreeMap<Text<'a>, Text<'a>>);

impl<'de> Deserialize<'de> for DataPairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = DataPairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<DataPairs<'de>, A::Error> {
                let mut pairs = BTreeMap::new();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    match pairs.entry(key) {
                        Entry::Vacant(free) => free.insert(map.next_value()?),
                        Entry::Occupied(first) => {
                            let text = format_args!("has the key `{}` twice", &**first.key());
                            return Err(de::Error::custom(text));
                        }
                    };
                }
                Ok(DataPairs(pairs))
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

impl<'a> DataPairs<'a> {
    pub(super) fn check(self) -> Result<BTreeMap<Text<'a>, Text<'a>>, Rejection> {
        let Self(pairs) = self;
        let bytes: usize = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > MAX_BYTES {
            return Err(illegal(format!(
                "data has {bytes} bytes of keys and values together, at most {MAX_BYTES} are allowed"
            )));
        }
        Ok(pairs)
    }
}
