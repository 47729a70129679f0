//! The profile of a device as its record has it, and changes of it, all in codes.
//!
//! A change is put into codes before the record is read, so that one is applied to the other without the dictionaries:
//! what the change does not name keeps its code, even one that the dictionary has lost.
//!
//! | bytes | what |
//! |---|---|
//! | 1 + 4 n | the number of custom attributes, and the id and the code of each, by id |
//! | 1 + 2 n | the number of topics, and the code of each, in order |
//! | rest | the user id |

use push_model::{
    custom::{CustomId, MAX_CUSTOM_ATTRIBUTES},
    ids::UserId,
    profile::{MAX_TOPICS, UserChange},
};

/// The profile in a record. The default is that of a device without a profile, whose record has no such section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::redis) struct Section<'a> {
    custom: &'a [[u8; 4]],
    topics: &'a [[u8; 2]],
    user: &'a str,
}

impl<'a> Section<'a> {
    /// Reads a section without the length before it.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (custom, rest) = bytes.split_first()?;
        let (custom, rest) = rest.split_at_checked(usize::from(*custom) * 4)?;
        let (topics, rest) = rest.split_first()?;
        let (topics, user) = rest.split_at_checked(usize::from(*topics) * 2)?;
        let user = std::str::from_utf8(user).ok()?;
        Some(Self { custom: custom.as_chunks().0, topics: topics.as_chunks().0, user })
    }

    /// Appends the section with the length before it; nothing if it is empty.
    pub(super) fn encode(&self, record: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        // No section is as long as two bytes can express: the numbers in it have one byte each.
        let len = u16::try_from(self.stored_len() - 2).unwrap_or(u16::MAX);
        record.extend_from_slice(&len.to_be_bytes());
        record.push(u8::try_from(self.custom.len()).unwrap_or(u8::MAX));
        record.extend(self.custom.iter().flatten());
        record.push(u8::try_from(self.topics.len()).unwrap_or(u8::MAX));
        record.extend(self.topics.iter().flatten());
        record.extend_from_slice(self.user.as_bytes());
    }

    /// Returns how many bytes of a record it takes.
    pub(super) fn stored_len(&self) -> usize {
        let numbers = 4 * self.custom.len() + 2 * self.topics.len();
        if self.is_empty() { 0 } else { 4 + numbers + self.user.len() }
    }

    /// Returns true if the device has no profile.
    pub(super) fn is_empty(&self) -> bool {
        self.custom.is_empty() && self.topics.is_empty() && self.user.is_empty()
    }

    /// The code of each custom attribute, by id.
    pub(in crate::redis) fn custom(&self) -> impl Iterator<Item = (CustomId, u16)> + use<'a> {
        self.custom
            .iter()
            .map(|&[a, b, c, d]| (CustomId(u16::from_be_bytes([a, b])), u16::from_be_bytes([c, d])))
    }

    /// The code of a custom attribute; 0 if the device lacks it.
    pub(super) fn code_of(&self, id: CustomId) -> u16 {
        self.custom().find(|(of, _)| *of == id).map_or(0, |(_, code)| code)
    }

    /// The codes of the topics, in order.
    pub(in crate::redis) fn topics(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.topics.iter().map(|code| u16::from_be_bytes(*code))
    }

    /// The same profile without the user.
    pub(super) fn without_user(self) -> Self {
        Self { user: "", ..self }
    }

    /// The same profile, on its own.
    pub(super) fn to_codes(self) -> ProfileCodes {
        let Self { custom, topics, user } = self;
        ProfileCodes { custom: custom.to_vec(), topics: topics.to_vec(), user: user.into() }
    }

    /// The user id as text; empty if there is none.
    pub(in crate::redis) fn user(&self) -> &'a str {
        self.user
    }

    /// The user, unless the text is no user id.
    pub(in crate::redis) fn user_id(&self) -> Option<UserId> {
        self.user.parse().ok()
    }
}

/// A profile in codes. Its section is as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::redis) struct ProfileCodes {
    custom: Vec<[u8; 4]>,
    topics: Vec<[u8; 2]>,
    user: Box<str>,
}

impl ProfileCodes {
    pub(in crate::redis) fn section(&self) -> Section<'_> {
        Section { custom: &self.custom, topics: &self.topics, user: &self.user }
    }

    /// The same profile without the user.
    pub(super) fn without_user(self) -> Self {
        Self { user: "".into(), ..self }
    }

    /// Keeps the custom attributes that the app declares; those that were declared last, if that is not known.
    pub(super) fn retain_declared(&mut self, declared: Option<&[CustomId]>) {
        match declared {
            Some(ids) => self
                .custom
                .retain(|&[a, b, ..]| ids.contains(&CustomId(u16::from_be_bytes([a, b])))),
            None => {
                let older = self.custom.len().saturating_sub(MAX_CUSTOM_ATTRIBUTES);
                self.custom.drain(..older);
            }
        }
    }

    /// Returns how many custom attributes there are.
    pub(super) fn custom_len(&self) -> usize {
        self.custom.len()
    }
}

/// A change of custom attributes, each with its code, or 0 for one that is taken away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::redis) enum CustomCodes {
    #[default]
    Keep,
    Replace(Vec<(CustomId, u16)>),
    Merge(Vec<(CustomId, u16)>),
}

/// A change of topics. Those that are added are in the order of their names, each once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::redis) enum TopicCodes {
    #[default]
    Keep,
    Replace(Vec<u16>),
    Edit {
        add: Vec<u16>,
        /// With all codes that a topic has had.
        remove: Vec<u16>,
    },
}

/// A change of a profile in codes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::redis) struct CodedChange {
    pub(in crate::redis) custom: CustomCodes,
    pub(in crate::redis) topics: TopicCodes,
    pub(in crate::redis) user: UserChange,
}

impl CodedChange {
    /// Returns a profile after this change, and how many topics it would have beyond [`MAX_TOPICS`]: the rules are those
    /// of [`ProfileChange::apply`](push_model::profile::ProfileChange::apply).
    pub(super) fn apply(&self, before: Section<'_>) -> (ProfileCodes, usize) {
        let custom = match &self.custom {
            CustomCodes::Keep => before.custom.to_vec(),
            CustomCodes::Replace(codes) => sorted_codes(codes.clone()),
            CustomCodes::Merge(codes) => {
                sorted_codes(before.custom().chain(codes.iter().copied()).collect())
            }
        };
        let (mut topics, added): (Vec<u16>, Vec<u16>) = match &self.topics {
            TopicCodes::Keep => (before.topics().collect(), Vec::new()),
            TopicCodes::Replace(codes) => {
                codes.iter().partition(|code| before.topics().any(|had| had == **code))
            }
            TopicCodes::Edit { add, remove } => {
                (before.topics().filter(|code| !remove.contains(code)).collect(), add.clone())
            }
        };
        let added: Vec<u16> = added.into_iter().filter(|code| !topics.contains(code)).collect();
        let room = MAX_TOPICS.saturating_sub(topics.len());
        topics.extend(added.iter().take(room));
        topics.sort_unstable();
        let topics = topics.into_iter().map(u16::to_be_bytes).collect();
        let user = match &self.user {
            UserChange::Keep => before.user.into(),
            UserChange::Set(user) => user.as_ref().map_or("", UserId::as_str).into(),
        };
        (ProfileCodes { custom, topics, user }, added.len().saturating_sub(room))
    }
}

/// Codes by id as they are stored: the last one of each id, unless it is 0.
fn sorted_codes(mut codes: Vec<(CustomId, u16)>) -> Vec<[u8; 4]> {
    codes.reverse();
    codes.sort_by_key(|(id, _)| *id);
    codes.dedup_by_key(|(id, _)| *id);
    let stored = codes.into_iter().filter(|(_, code)| *code > 0).map(|(CustomId(id), code)| {
        let ([a, b], [c, d]) = (id.to_be_bytes(), code.to_be_bytes());
        [a, b, c, d]
    });
    stored.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(ids: &[(u16, u16)]) -> Vec<(CustomId, u16)> {
        ids.iter().map(|(id, code)| (CustomId(*id), *code)).collect()
    }

    #[test]
    fn a_section_is_read_as_it_was_written_and_what_is_not_named_keeps_its_code() {
        let replace = CodedChange {
            custom: CustomCodes::Replace(codes(&[(7, 300), (2, 1), (9, 0)])),
            topics: TopicCodes::Replace(vec![9, 500, 3]),
            user: UserChange::Set("u".parse().ok()),
        };
        let (first, _) = replace.apply(Section::default());
        let mut bytes = Vec::new();
        first.section().encode(&mut bytes);
        assert_eq!(bytes.len(), first.section().stored_len());
        assert_eq!(usize::from(bytes[1]) + 2, bytes.len());
        let read = Section::decode(&bytes[2..]).unwrap();
        assert_eq!(read, first.section());
        assert_eq!(read.custom().collect::<Vec<_>>(), codes(&[(2, 1), (7, 300)]));
        assert_eq!((read.topics().collect::<Vec<_>>(), read.user()), (vec![3, 9, 500], "u"));

        assert_eq!(CodedChange::default().apply(read), (first.clone(), 0));
        let change = CodedChange {
            custom: CustomCodes::Merge(codes(&[(2, 0), (8, 1), (8, 2)])),
            topics: TopicCodes::Edit { add: vec![4, 3], remove: vec![9, 77] },
            user: UserChange::Keep,
        };
        let (second, beyond) = change.apply(read);
        let second = second.section();
        assert_eq!(second.custom().collect::<Vec<_>>(), codes(&[(7, 300), (8, 2)]));
        assert_eq!((second.topics().collect::<Vec<_>>(), beyond), (vec![3, 4, 500], 0));
        assert_eq!((second.code_of(CustomId(7)), second.code_of(CustomId(2))), (300, 0));
    }

    #[test]
    fn a_device_gets_no_topic_beyond_the_hundredth_and_loses_none_of_those_it_has() {
        let all = |codes: Vec<u16>| TopicCodes::Replace(codes);
        let full = CodedChange { topics: all((1..=100).collect()), ..Default::default() };
        let (full, _) = full.apply(Section::default());
        let edit = TopicCodes::Edit { add: vec![200, 50, 150], remove: vec![7] };
        let (after, beyond) =
            CodedChange { topics: edit, ..Default::default() }.apply(full.section());
        assert_eq!((after.section().topics().count(), beyond), (100, 1));
        assert!(after.section().topics().any(|code| code == 200));
        let replace = all((50..=101).rev().chain(300..400).collect());
        let (after, beyond) =
            CodedChange { topics: replace, ..Default::default() }.apply(full.section());
        let after: Vec<u16> = after.section().topics().collect();
        assert!((50..=101).all(|code| after.contains(&code)), "{after:?}");
        assert_eq!((after.len(), beyond), (100, 52));
    }

    #[test]
    fn damaged_bytes_are_no_section() {
        assert_eq!(Section::decode(&[]), None);
        assert_eq!(Section::decode(&[1, 0, 0, 0]), None);
        assert_eq!(Section::decode(&[0, 2, 0, 0, 0]), None);
        assert_eq!(Section::decode(&[0, 0, 0xff]), None);
    }
}
