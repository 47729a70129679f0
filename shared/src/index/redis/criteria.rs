//! Targeting on codes: each criterion becomes a table from code to yes or no, made once from the
//! dictionary, so that a device costs one look a criterion however many values are asked for.

use super::{
    dictionary::Dictionaries,
    layout::{CODE_LEN, SEGMENT_SLOTS},
    record::{Codes, Record},
};
use crate::{attributes::Attribute, targeting::Targeting, time::UnixMillis};

/// What a table says of a code.
const NO: u8 = 0;
const YES: u8 = 1;
/// The dictionary did not have this code when the table was made.
const NOT_KNOWN: u8 = 2;

/// A code came up that was added to the dictionary after the tables were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outdated;

/// Targeting and the time of acceptance, ready to decide.
#[derive(Debug)]
pub(super) struct Criteria {
    tables: Vec<Table>,
    registered_by: UnixMillis,
}

/// One criterion: for each code in the dictionary, whether a device with it is meant. Made for
/// every page, so no larger than it must be.
#[derive(Debug)]
struct Table {
    attribute: Attribute,
    verdicts: Vec<u8>,
}

impl Table {
    fn new(attribute: Attribute, wanted: &[Box<str>], dictionaries: &Dictionaries) -> Self {
        let verdicts = dictionaries.with(attribute, |known| {
            // Code 0 is that of no value.
            let mut verdicts = vec![NO; known.values().len() + 1];
            let mut yes = |code: u16| {
                if let Some(verdict) = verdicts.get_mut(usize::from(code)) {
                    *verdict = YES;
                }
            };
            if attribute == Attribute::Language {
                (1..=u16::MAX)
                    .zip(known.values())
                    .filter(|(_, has)| wanted.iter().any(|wanted| attribute.matches(wanted, has)))
                    .for_each(|(code, _)| yes(code));
            } else {
                wanted.iter().filter_map(|value| known.code(value)).for_each(yes);
            }
            verdicts
        });
        Self { attribute, verdicts }
    }

    fn verdict(&self, code: u16) -> u8 {
        self.verdicts.get(usize::from(code)).copied().unwrap_or(NOT_KNOWN)
    }
}

impl Criteria {
    pub(super) fn new(
        targeting: &Targeting,
        registered_by: UnixMillis,
        dictionaries: &Dictionaries,
    ) -> Self {
        let table = |(attribute, wanted)| Table::new(attribute, wanted, dictionaries);
        Self { tables: targeting.criteria().map(table).collect(), registered_by }
    }

    /// The attributes that restrict: their columns are what [`Criteria::candidates`] needs.
    pub(super) fn attributes(&self) -> impl Iterator<Item = Attribute> {
        self.tables.iter().map(|table| table.attribute)
    }

    /// Which slots can be meant, in order and counted from where the columns begin, by the columns
    /// of the attributes that restrict, of one segment at most. What a column does not reach is
    /// not meant.
    ///
    /// Each criterion looks only at what those before it left. The loops have no branch on what
    /// they find: a processor cannot foresee who is meant.
    pub(super) fn candidates(&self, columns: &[Vec<u8>]) -> Result<Vec<u16>, Outdated> {
        let slots = columns.iter().map(|column| column.len() / CODE_LEN).min().unwrap_or(0);
        let mut left = vec![0_u16; slots.min(SEGMENT_SLOTS as usize)];
        let mut seen = 0;
        let columns = columns.iter().map(|column| column.as_chunks::<CODE_LEN>().0);
        let mut criteria = self.tables.iter().zip(columns);
        if let Some((table, codes)) = criteria.next() {
            let mut kept = 0;
            for (slot, code) in (0..).zip(&codes[..left.len()]) {
                let verdict = table.verdict(u16::from_be_bytes(*code));
                seen |= verdict;
                left[kept] = slot;
                kept += usize::from(verdict == YES);
            }
            left.truncate(kept);
        }
        for (table, codes) in criteria {
            let mut kept = 0;
            for at in 0..left.len() {
                let slot = left[at];
                let verdict = table.verdict(u16::from_be_bytes(codes[usize::from(slot)]));
                seen |= verdict;
                left[kept] = slot;
                kept += usize::from(verdict == YES);
            }
            left.truncate(kept);
        }
        if seen & NOT_KNOWN == 0 { Ok(left) } else { Err(Outdated) }
    }

    /// Whether the device with this record is meant.
    pub(super) fn accept(&self, record: &Record<'_>) -> Result<bool, Outdated> {
        if record.born > self.registered_by {
            return Ok(false);
        }
        self.accept_codes(&record.codes)
    }

    fn accept_codes(&self, codes: &Codes) -> Result<bool, Outdated> {
        for table in &self.tables {
            match table.verdict(codes[table.attribute.index()]) {
                YES => {}
                NO => return Ok(false),
                _ => return Err(Outdated),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(codes: &[u16]) -> Vec<u8> {
        codes.iter().flat_map(|code| code.to_be_bytes()).collect()
    }

    #[test]
    fn a_code_that_came_after_the_tables_is_noticed_and_no_code_is_no() {
        let mut targeting = Targeting::everyone();
        targeting.set(Attribute::Country, vec!["CN".into()]);
        let criteria = Criteria::new(&targeting, UnixMillis(0), &Dictionaries::default());
        assert_eq!(criteria.candidates(&[column(&[0, 0])]), Ok(vec![]));
        assert_eq!(criteria.candidates(&[column(&[0, 1])]), Err(Outdated));
        assert_eq!(criteria.accept_codes(&[1, 0, 0, 0, 0, 0]), Err(Outdated));
        assert_eq!(criteria.accept_codes(&[0, 9, 0, 0, 0, 0]), Ok(false));
    }

    #[test]
    fn a_slot_is_meant_if_every_criterion_says_so_and_one_no_needs_no_other_answer() {
        let table = |attribute, verdicts: &[u8]| Table { attribute, verdicts: verdicts.to_vec() };
        let tables = vec![
            table(Attribute::Country, &[NO, YES, NO]),
            table(Attribute::Brand, &[NO, NO, YES]),
        ];
        let criteria = Criteria { tables, registered_by: UnixMillis(0) };
        let candidates = |countries: &[u16], brands: &[u16]| {
            criteria.candidates(&[column(countries), column(brands)])
        };
        assert_eq!(candidates(&[1, 0, 2, 1, 1], &[2, 2, 2, 1, 2]), Ok(vec![0, 4]));
        assert_eq!(candidates(&[1, 1, 1], &[2]), Ok(vec![0]), "a short column is a no");
        assert_eq!(candidates(&[0, 2], &[3, 3]), Ok(vec![]), "what is not known decides nothing");
        assert_eq!(candidates(&[0, 1], &[2, 3]), Err(Outdated));
        assert_eq!(candidates(&[3, 0], &[0, 0]), Err(Outdated));
    }
}
