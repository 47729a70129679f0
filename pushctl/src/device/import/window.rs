//! The part of an import that is in memory at once: as many devices as fit, in the order of the
//! index.
//!
//! What an index does for a device it does in part for all its neighbours at once, so the more
//! devices of an app a window has, the less each of them costs: in an import of ten million, Redis
//! took 7.3 µs for a device in windows of 131 thousand lines and 4.0 µs in windows of a million;
//! and windows of three million took a tenth of the time off windows of half that size. So a
//! device is packed into 32 bytes and its texts; unpacked, it would take three times as much.

use std::{collections::HashMap, fmt::Display, io, sync::Arc};

use push_model::{
    attributes::{Attribute, Attributes, BadValue},
    device::{Device, DeviceDraft, TransportKind},
    ids::{BadId, ClientId},
};

use crate::{
    bad_lines::BadLines,
    lines::{Line, Lines},
};

/// The longest line, in bytes: a device with the longest token fits twice.
pub(super) const MAX_LINE: u64 = 16 * 1024;
/// The most lines of a window, which is what many short ones without a device come to.
const WINDOW_LINES: u32 = 1 << 24;
/// The most values of attributes in a window: as many have a number.
const WINDOW_VALUES: usize = u16::MAX as usize - Attribute::COUNT;

/// A device of a window.
#[derive(Debug)]
pub(super) struct Packed {
    /// Its place in the order of the index.
    order: u64,
    /// Its line, of those of the window.
    line: u32,
    /// Where its client id begins in the texts; its token stands behind it.
    at: u32,
    token_len: u16,
    id_len: u8,
    transport: TransportKind,
    /// The numbers of its values, 0 for none.
    values: [u16; Attribute::COUNT],
}

impl Packed {
    /// Its client id; nothing of the texts is looked at before that is compared.
    fn client_id<'a>(&self, texts: &'a [u8]) -> &'a [u8] {
        let text = texts.get(self.at as usize..).unwrap_or_default();
        text.get(..self.id_len.into()).unwrap_or_default()
    }
}

/// Devices, and what the lines between them were. Emptied and filled again, it keeps its memory.
#[derive(Debug)]
pub(super) struct Window {
    /// What its devices may take in memory, in bytes, and at most a line more.
    room: usize,
    devices: Vec<Packed>,
    texts: String,
    values: Values,
    /// Lines of the input before this window.
    lines_before: u64,
    lines: u32,
    /// How much of the input it is.
    pub(super) bytes: u64,
    pub(super) bad: BadLines,
}

impl Window {
    /// An empty one with so much room, in bytes.
    pub(super) fn of(room: usize) -> Self {
        Self {
            room,
            devices: Vec::new(),
            texts: String::new(),
            values: Values::default(),
            lines_before: 0,
            lines: 0,
            bytes: 0,
            bad: BadLines::default(),
        }
    }

    /// Takes lines until it is full, or has so many devices, or until there are no more lines.
    /// What it had is gone; the lines are those that follow it. Whether there may be more.
    pub(super) fn fill(
        &mut self,
        input: &mut Lines<impl io::Read>,
        lines_before: u64,
        most_devices: usize,
        order: impl Fn(&ClientId) -> u64,
    ) -> io::Result<bool> {
        self.clear();
        self.lines_before = lines_before;
        let mut more = true;
        while more && self.devices.len() < most_devices && self.has_room() {
            match input.next()? {
                Some(line) => self.take(&line, &order),
                None => more = false,
            }
        }
        self.sort();
        Ok(more)
    }

    /// Of two lines for one device the later comes later.
    fn sort(&mut self) {
        let texts = self.texts.as_bytes();
        let key = |device: &Packed| (device.order, device.client_id(texts), device.line);
        self.devices.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    }

    fn clear(&mut self) {
        self.devices.clear();
        self.texts.clear();
        self.values.clear();
        (self.lines, self.bytes, self.bad) = (0, 0, BadLines::default());
    }

    fn has_room(&self) -> bool {
        self.devices.len() * size_of::<Packed>() + self.texts.len() < self.room
            && self.lines < WINDOW_LINES
            && self.values.count() < WINDOW_VALUES
    }

    /// How many lines of the input come before the next window.
    pub(super) fn lines_until_end(&self) -> u64 {
        self.lines_before + u64::from(self.lines)
    }

    fn take(&mut self, line: &Line<'_>, order: impl Fn(&ClientId) -> u64) {
        self.lines += 1;
        self.bytes += line.bytes;
        let taken = match line.text {
            None => Err(format!("longer than {MAX_LINE} bytes")),
            Some(text) if text.trim_ascii().is_empty() => Ok(()),
            Some(text) => self.pack(text, order),
        };
        if let Err(reason) = taken {
            self.bad.add(self.lines_until_end(), reason);
        }
    }

    fn pack(&mut self, line: &[u8], order: impl Fn(&ClientId) -> u64) -> Result<(), String> {
        let not_a_device = |error: &dyn Display| format!("not a device: {error}");
        let line = str::from_utf8(line).map_err(|error| not_a_device(&error))?;
        let mut draft: DeviceDraft<'_> =
            serde_json::from_str(line).map_err(|error| not_a_device(&error))?;
        let client_id = draft.client_id.take().ok_or("client_id is missing")?;
        let client_id: ClientId =
            client_id.parse().map_err(|problem| format!("client_id {problem}"))?;
        let mut values = [0; Attribute::COUNT];
        let normalise = |attribute: Attribute, text: &str| {
            let (number, value) = self.values.normalise(attribute, text)?;
            values[attribute.index()] = number;
            Ok(value)
        };
        let device = draft.check_with(client_id, normalise).map_err(|bad| bad.to_string())?;
        let (id, token) = (device.client_id.as_str(), device.token.as_deref().unwrap_or_default());
        // What a line can be and what a window takes is far below what these numbers can say.
        let too_long = |_| "too long".to_owned();
        self.devices.push(Packed {
            order: order(&device.client_id),
            line: self.lines,
            at: u32::try_from(self.texts.len()).map_err(too_long)?,
            token_len: u16::try_from(token.len()).map_err(too_long)?,
            id_len: u8::try_from(id.len()).map_err(too_long)?,
            transport: device.transport,
            values,
        });
        self.texts.push_str(id);
        self.texts.push_str(token);
        Ok(())
    }

    /// How many devices it has.
    pub(super) fn count(&self) -> usize {
        self.devices.len()
    }

    /// The devices in the order of the index, in so many parts of about the same size. No two
    /// parts have lines of the same device.
    pub(super) fn parts(&self, count: usize) -> impl Iterator<Item = &[Packed]> {
        let length = self.devices.len().div_ceil(count);
        let mut rest = self.devices.as_slice();
        std::iter::from_fn(move || {
            let (part, others) = rest.split_at(length.min(rest.len()));
            let last = part.last()?;
            let texts = self.texts.as_bytes();
            let is_same = |device: &&Packed| device.client_id(texts) == last.client_id(texts);
            let same = others.iter().take_while(is_same).count();
            let (part, others) = rest.split_at(part.len() + same);
            rest = others;
            Some(part)
        })
    }

    /// The number of the line that a device is from.
    pub(super) fn line_of(&self, device: &Packed) -> u64 {
        self.lines_before + u64::from(device.line)
    }

    /// The devices themselves.
    pub(super) fn unpack(&self, devices: &[Packed]) -> Result<Vec<Device>, BadId> {
        devices.iter().map(|device| self.unpack_one(device)).collect()
    }

    fn unpack_one(&self, device: &Packed) -> Result<Device, BadId> {
        let text = self.texts.get(device.at as usize..).unwrap_or_default();
        let (client_id, rest) = text.split_at_checked(device.id_len.into()).unwrap_or_default();
        let token = rest.get(..device.token_len.into()).unwrap_or_default();
        let mut attributes = Attributes::default();
        for (attribute, number) in Attribute::ALL.into_iter().zip(device.values) {
            if let Some(value) = self.values.get(number) {
                attributes.set_normalised(attribute, value);
            }
        }
        Ok(Device {
            client_id: client_id.parse()?,
            attributes,
            transport: device.transport,
            token: (!token.is_empty()).then(|| token.into()),
        })
    }
}

/// The values of attributes that came up, as they are normalised, with a number each from 1 on.
#[derive(Debug, Default)]
struct Values {
    /// By how they were written.
    numbers: [HashMap<Box<str>, u16>; Attribute::COUNT],
    values: Vec<Arc<str>>,
}

impl Values {
    fn normalise(&mut self, attribute: Attribute, text: &str) -> Result<(u16, Arc<str>), BadValue> {
        let numbers = &mut self.numbers[attribute.index()];
        if let Some(&number) = numbers.get(text)
            && let Some(value) = self.values.get(usize::from(number) - 1)
        {
            return Ok((number, Arc::clone(value)));
        }
        let value: Arc<str> = attribute.normalise(text)?.into();
        self.values.push(Arc::clone(&value));
        // A window is full before its numbers are used up.
        let number = u16::try_from(self.values.len()).unwrap_or(u16::MAX);
        numbers.insert(text.into(), number);
        Ok((number, value))
    }

    fn get(&self, number: u16) -> Option<Arc<str>> {
        self.values.get(usize::from(number).checked_sub(1)?).cloned()
    }

    fn count(&self) -> usize {
        self.values.len()
    }

    fn clear(&mut self) {
        self.numbers.iter_mut().for_each(HashMap::clear);
        self.values.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 32 << 20;

    /// How many devices of so many lines a window takes, and whether there may be more.
    fn taken(lines: usize, line: impl Fn(usize) -> String) -> (usize, bool) {
        let input: String = (0..lines).map(line).collect();
        let mut window = Window::of(ROOM);
        let more =
            window.fill(&mut Lines::new(input.as_bytes(), MAX_LINE), 0, usize::MAX, |_| 0).unwrap();
        (window.count(), more)
    }

    #[test]
    fn a_window_is_full_when_its_memory_is_used_up() {
        let token = "t".repeat(4096);
        let line = |_| format!("{{\"client_id\":\"a\",\"token\":\"{token}\"}}\n");
        let each = size_of::<Packed>() + 1 + token.len();
        let fit = ROOM.div_ceil(each);
        assert_eq!(taken(fit + 100, line), (fit, true));
        assert_eq!(taken(100, line), (100, false));
    }

    #[test]
    fn a_window_is_full_before_the_numbers_of_its_values_are_used_up() {
        let line = |n| format!("{{\"client_id\":\"a\",\"model\":\"{n}\"}}\n");
        assert_eq!(taken(usize::from(u16::MAX) + 100, line), (WINDOW_VALUES, true));
    }
}
