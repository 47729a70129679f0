//! Targeting on codes: each criterion becomes a table from code to yes or no, made once from the
//! dictionary, so that a device costs one look a criterion however many values are asked for.

use push_model::{attributes::Attribute, targeting::Targeting, time::UnixMillis};

use super::{
    dictionary::Dictionaries,
    record::{Codes, Record},
};

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
/// every page, so no larger than it must be; but each code of one byte has a verdict.
#[derive(Debug)]
struct Table {
    attribute: Attribute,
    verdicts: Vec<u8>,
    /// What is said of codes that are not in the dictionary.
    otherwise: u8,
}

/// Codes of one byte.
const NARROW: usize = 1 << 8;

/// Slots through which all criteria go before the next ones are looked at: what is left of them
/// stays in the processor's nearest cache.
const BLOCK: usize = 4096;

/// A part of a column: the bytes of the codes, slot by slot.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) low: Vec<u8>,
    /// Where it ends the high bytes are 0.
    pub(super) high: Vec<u8>,
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
        Self::of(attribute, verdicts)
    }

    fn of(attribute: Attribute, mut verdicts: Vec<u8>) -> Self {
        verdicts.resize(verdicts.len().max(NARROW), NOT_KNOWN);
        Self { attribute, verdicts, otherwise: NOT_KNOWN }
    }

    fn verdict(&self, code: u16) -> u8 {
        self.verdicts.get(usize::from(code)).copied().unwrap_or(self.otherwise)
    }

    /// Keeps the slots that are meant.
    fn thin(&self, column: &Column, slots: &mut Slots) {
        let Column { low, high } = column;
        match self.verdicts.first_chunk::<NARROW>() {
            Some(narrow) if high.is_empty() => slots.keep(|slot| narrow[usize::from(low[slot])]),
            _ => slots.keep(|slot| {
                let high = high.get(slot).copied().unwrap_or(0);
                self.verdict(u16::from_be_bytes([high, low[slot]]))
            }),
        }
    }
}

/// The slots of a block that are left.
struct Slots {
    /// All from the first to before the second, if nobody has looked yet.
    all: Option<(u16, u16)>,
    /// Otherwise so many of these, in order.
    left: [u16; BLOCK],
    count: usize,
    /// What was said of those that were looked at.
    seen: u8,
}

impl Slots {
    /// The loops have no branch on what they find: a processor cannot foresee who is meant.
    fn keep(&mut self, verdict: impl Fn(usize) -> u8) {
        let mut kept = 0;
        let mut look = |left: &mut [u16; BLOCK], slot: u16| {
            let verdict = verdict(usize::from(slot));
            self.seen |= verdict;
            left[kept] = slot;
            kept += usize::from(verdict == YES);
        };
        if let Some((from, to)) = self.all.take() {
            (from..to).for_each(|slot| look(&mut self.left, slot));
        } else {
            for at in 0..self.count {
                let slot = self.left[at];
                look(&mut self.left, slot);
            }
        }
        self.count = kept;
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

    /// The same where a code that the dictionary lacks is a no. It lacks a code that devices have
    /// only if it lost its last writes and the devices did not (they can be on other masters of a
    /// cluster); nothing says any more what value that was.
    pub(super) fn without_unknown(mut self) -> Self {
        for table in &mut self.tables {
            table.otherwise = NO;
            table.verdicts.iter_mut().filter(|v| **v == NOT_KNOWN).for_each(|v| *v = NO);
        }
        self
    }

    /// The attributes that restrict: their columns are what [`Criteria::candidates`] needs.
    pub(super) fn attributes(&self) -> impl Iterator<Item = Attribute> {
        self.tables.iter().map(|table| table.attribute)
    }

    /// Whether one of these attributes has more values than one byte tells apart.
    pub(super) fn expect_high_bytes(&self) -> bool {
        self.tables.iter().any(|table| table.verdicts.len() > NARROW)
    }

    /// Which slots can be meant, in order and counted from where the columns begin, by the columns
    /// of the attributes that restrict, of one segment at most. What a column does not reach is
    /// not meant.
    ///
    /// Each criterion looks only at what those before it left.
    pub(super) fn candidates(&self, columns: &[Column]) -> Result<Vec<u16>, Outdated> {
        let reach = columns.iter().map(|column| column.low.len()).min().unwrap_or(0);
        let reach = u16::try_from(reach).unwrap_or(u16::MAX);
        let mut slots = Slots { all: None, left: [0; BLOCK], count: 0, seen: 0 };
        let mut meant = Vec::new();
        for from in (0..reach).step_by(BLOCK) {
            slots.all = Some((from, reach.min(from.saturating_add(BLOCK as u16))));
            for (table, column) in self.tables.iter().zip(columns) {
                table.thin(column, &mut slots);
            }
            meant.extend_from_slice(&slots.left[..slots.count]);
        }
        if slots.seen & NOT_KNOWN == 0 { Ok(meant) } else { Err(Outdated) }
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

    fn column(codes: &[u16]) -> Column {
        let plane = |byte: usize| codes.iter().map(|code| code.to_be_bytes()[byte]).collect();
        let (mut high, low): (Vec<u8>, _) = (plane(0), plane(1));
        high.truncate(high.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        Column { low, high }
    }

    #[test]
    fn a_code_that_came_after_the_tables_is_noticed_and_no_code_is_no() {
        let mut targeting = Targeting::everyone();
        targeting.set(Attribute::Country, vec!["CN".into()]);
        let unread = Dictionaries::new(std::time::Instant::now(), [None; 2]);
        let criteria = Criteria::new(&targeting, UnixMillis(0), &unread);
        assert_eq!(criteria.candidates(&[column(&[0, 0])]), Ok(vec![]));
        assert_eq!(criteria.candidates(&[column(&[0, 1])]), Err(Outdated));
        assert_eq!(criteria.accept_codes(&[1, 0, 0, 0, 0, 0]), Err(Outdated));
        assert_eq!(criteria.accept_codes(&[0, 9, 0, 0, 0, 0]), Ok(false));
        let criteria = criteria.without_unknown();
        assert_eq!(criteria.candidates(&[column(&[0, 1, 300])]), Ok(vec![]));
        assert_eq!(criteria.accept_codes(&[1, 0, 0, 0, 0, 0]), Ok(false));
    }

    #[test]
    fn a_slot_is_meant_if_every_criterion_says_so_and_one_no_needs_no_other_answer() {
        let table = |attribute, verdicts: &[u8]| Table::of(attribute, verdicts.to_vec());
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
