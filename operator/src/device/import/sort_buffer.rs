//! A sort buffer: devices of an import that are in memory together, in the storage order of the index.
//!
//! An index does part of its work once for all devices that are neighbours in its storage order, so
//! the more devices of an app a buffer holds, the less each of them costs. In an import of ten
//! million, Redis took 7.3 µs for a device with buffers of 131 thousand lines and 4.0 µs with
//! buffers of a million; buffers of three million took a tenth less time than buffers of half that
//! size. So a device is packed into 32 bytes and its texts, a third of what it takes unpacked.

use std::{collections::HashMap, fmt::Display, io, sync::Arc};

use push_model::{
    attributes::{Attribute, Attributes},
    custom::Declarations,
    device::{CheckedDevice, Device, DeviceDraft, TransportKind},
    ids::{BadId, ClientId},
    profile::{DeviceWrite, Profile, ProfileChange},
};
use push_providers::by_kind::stored_device;
use ring::rand::SystemRandom;

use super::interned_values::InternedValues;
use crate::input::{Line, LineReader, NotedLines};

/// The longest line, in bytes: twice what a device with the longest token needs.
pub(super) const MAX_LINE: u64 = 16 * 1024;
/// The most lines of a buffer. It bounds an input of lines that hold no device and so take no
/// memory.
const BUFFER_LINES: u32 = 1 << 24;
/// The most attribute values of a buffer: `u16` numbers them, and one more device must still fit.
const BUFFER_VALUES: usize = u16::MAX as usize - Attribute::COUNT;

/// A device in a buffer.
#[derive(Debug)]
pub(super) struct PackedDevice {
    /// Its position in the storage order of the index.
    order: u64,
    /// Its line, counted from the start of the buffer.
    line: u32,
    /// The offset of its client id in the texts; the token follows it.
    text_offset: u32,
    token_len: u16,
    id_len: u8,
    transport: TransportKind,
    /// Its attribute values by their number in [`InternedValues`], 0 for none.
    values: [u16; Attribute::COUNT],
}

impl PackedDevice {
    /// Returns its client id as bytes: sorting compares it without checking that it is UTF-8.
    fn client_id<'a>(&self, texts: &'a [u8]) -> &'a [u8] {
        let text = texts.get(self.text_offset as usize..).unwrap_or_default();
        text.get(..self.id_len.into()).unwrap_or_default()
    }
}

/// Packed devices, and the faults of lines. A buffer is reused and keeps its allocations.
#[derive(Debug)]
pub(super) struct SortBuffer {
    /// The memory for devices and texts, in bytes; the last line may exceed it.
    capacity: usize,
    devices: Vec<PackedDevice>,
    texts: String,
    values: InternedValues,
    /// What lines change of their devices' profiles, by line. Most lines of most apps change nothing.
    profiles: HashMap<u32, ProfileChange>,
    /// About what the profiles take, in bytes.
    profile_bytes: usize,
    declared: Arc<Declarations>,
    /// Lines of the input before those of this buffer.
    lines_before: u64,
    lines: u32,
    random: SystemRandom,
    /// The bytes of the input that it covers.
    pub(super) input_bytes: u64,
    pub(super) rejected: NotedLines,
    /// Attributes that cannot be read; their lines are imported without them.
    pub(super) warnings: NotedLines,
}

impl SortBuffer {
    /// Makes an empty buffer for about `capacity` bytes, for devices of an app that declares these attributes.
    pub(super) fn new(capacity: usize, declared: &Arc<Declarations>) -> Self {
        Self {
            capacity,
            devices: Vec::new(),
            texts: String::new(),
            values: InternedValues::default(),
            profiles: HashMap::new(),
            profile_bytes: 0,
            declared: Arc::clone(declared),
            lines_before: 0,
            lines: 0,
            random: SystemRandom::new(),
            input_bytes: 0,
            rejected: NotedLines::default(),
            warnings: NotedLines::default(),
        }
    }

    /// Replaces its contents with the next lines of the input, until it is full, has `max_devices`,
    /// or the input ends. Returns true if there may be more lines.
    pub(super) fn fill(
        &mut self,
        input: &mut LineReader<impl io::Read>,
        lines_before: u64,
        max_devices: usize,
        order: impl Fn(&ClientId) -> u64,
    ) -> io::Result<bool> {
        self.clear();
        self.lines_before = lines_before;
        let mut more = true;
        while more && self.devices.len() < max_devices && self.has_room() {
            match input.next_line()? {
                Some(line) => self.add(&line, &order),
                None => more = false,
            }
        }
        self.sort();
        Ok(more)
    }

    /// Sorts the devices. Lines of one device keep their order, so that the later one wins.
    fn sort(&mut self) {
        let texts = self.texts.as_bytes();
        let key = |device: &PackedDevice| (device.order, device.client_id(texts), device.line);
        self.devices.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    }

    fn clear(&mut self) {
        self.devices.clear();
        self.texts.clear();
        self.values.clear();
        self.profiles.clear();
        self.profile_bytes = 0;
        (self.lines, self.input_bytes) = (0, 0);
        (self.rejected, self.warnings) = (NotedLines::default(), NotedLines::default());
    }

    fn has_room(&self) -> bool {
        let packed = self.devices.len() * size_of::<PackedDevice>();
        packed + self.texts.len() + self.profile_bytes < self.capacity
            && self.lines < BUFFER_LINES
            && self.values.count() < BUFFER_VALUES
    }

    /// Returns the number of lines of the input before the next buffer.
    pub(super) fn lines_to_end(&self) -> u64 {
        self.lines_before + u64::from(self.lines)
    }

    fn add(&mut self, line: &Line<'_>, order: impl Fn(&ClientId) -> u64) {
        self.lines += 1;
        self.input_bytes += line.bytes;
        let packed = match line.text {
            None => Err(format!("longer than {MAX_LINE} bytes")),
            Some(text) if text.trim_ascii().is_empty() => Ok(()),
            Some(text) => self.pack(text, order),
        };
        if let Err(reason) = packed {
            self.rejected.add(self.lines_to_end(), reason);
        }
    }

    fn pack(&mut self, line: &[u8], order: impl Fn(&ClientId) -> u64) -> Result<(), String> {
        // The line of the input is named already; in the error it would always be the first.
        let not_a_device = |error: &dyn Display| {
            format!("not a device: {error}").replace(" at line 1 column ", " at character ")
        };
        let line = str::from_utf8(line).map_err(|error| not_a_device(&error))?;
        let mut draft: DeviceDraft<'_> =
            serde_json::from_str(line).map_err(|error| not_a_device(&error))?;
        let client_id = draft.client_id.take().ok_or("client_id is missing")?;
        let client_id: ClientId =
            client_id.parse().map_err(|problem| format!("client_id {problem}"))?;
        let profile = draft.check_profile(&self.declared).map_err(|bad| bad.to_string())?;
        let mut values = [0; Attribute::COUNT];
        let normalise = |attribute: Attribute, text: &str| {
            let (number, value) = self.values.intern(attribute, text)?;
            values[attribute.index()] = number;
            Ok(value)
        };
        let CheckedDevice { device, warnings } =
            draft.check_with(client_id, normalise).map_err(|bad| bad.to_string())?;
        let device = stored_device(device, &self.random).map_err(|bad| bad.to_string())?;
        let warnings = warnings.iter().map(ToString::to_string);
        for warning in warnings.chain(profile.warnings.iter().map(ToString::to_string)) {
            self.warnings.add(self.lines_before + u64::from(self.lines), warning);
        }
        if !profile.change.keeps_all() {
            // Parsed, a profile takes several times its text.
            self.profile_bytes += size_of::<(u32, ProfileChange)>() + 4 * line.len();
            self.profiles.insert(self.lines, profile.change);
        }
        let (id, token) = (device.client_id.as_str(), device.token.as_deref().unwrap_or_default());
        // Cannot fail: the lengths of lines and buffers are far below the bounds of these types.
        let too_long = |_| "too long".to_owned();
        self.devices.push(PackedDevice {
            order: order(&device.client_id),
            line: self.lines,
            text_offset: u32::try_from(self.texts.len()).map_err(too_long)?,
            token_len: u16::try_from(token.len()).map_err(too_long)?,
            id_len: u8::try_from(id.len()).map_err(too_long)?,
            transport: device.transport,
            values,
        });
        self.texts.push_str(id);
        self.texts.push_str(token);
        Ok(())
    }

    pub(super) fn count(&self) -> usize {
        self.devices.len()
    }

    /// Returns the devices in storage order, cut into at most `count` segments of about the same size. All
    /// lines of a device are in one segment.
    pub(super) fn segments(&self, count: usize) -> impl Iterator<Item = &[PackedDevice]> {
        let length = self.devices.len().div_ceil(count);
        let mut rest = self.devices.as_slice();
        std::iter::from_fn(move || {
            let (segment, behind) = rest.split_at(length.min(rest.len()));
            let last = segment.last()?;
            let texts = self.texts.as_bytes();
            let is_same = |device: &&PackedDevice| device.client_id(texts) == last.client_id(texts);
            let same = behind.iter().take_while(is_same).count();
            let (segment, behind) = rest.split_at(segment.len() + same);
            rest = behind;
            Some(segment)
        })
    }

    /// Returns the number of the device's line in the input.
    pub(super) fn line_of(&self, device: &PackedDevice) -> u64 {
        self.lines_before + u64::from(device.line)
    }

    pub(super) fn unpack(&self, devices: &[PackedDevice]) -> Result<Vec<DeviceWrite>, BadId> {
        devices.iter().map(|device| self.unpack_one(device)).collect()
    }

    fn unpack_one(&self, packed: &PackedDevice) -> Result<DeviceWrite, BadId> {
        let text = self.texts.get(packed.text_offset as usize..).unwrap_or_default();
        let (client_id, rest) = text.split_at_checked(packed.id_len.into()).unwrap_or_default();
        let token = rest.get(..packed.token_len.into()).unwrap_or_default();
        let mut attributes = Attributes::default();
        for (attribute, number) in Attribute::ALL.into_iter().zip(packed.values) {
            if let Some(value) = self.values.get(number) {
                attributes.set_normalised(attribute, value);
            }
        }
        let device = Device {
            client_id: client_id.parse()?,
            attributes,
            transport: packed.transport,
            token: (!token.is_empty()).then(|| token.into()),
            profile: Profile::default(),
        };
        let change = self.profiles.get(&packed.line).cloned().unwrap_or_default();
        Ok(DeviceWrite { device, change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 32 << 20;

    /// Returns the devices of an input that a buffer holds, and true if there may be more.
    fn filled(lines: usize, line: impl Fn(usize) -> String) -> (usize, bool) {
        let input: String = (0..lines).map(line).collect();
        let mut buffer = SortBuffer::new(CAPACITY, &Arc::default());
        let more = buffer
            .fill(&mut LineReader::new(input.as_bytes(), MAX_LINE), 0, usize::MAX, |_| 0)
            .unwrap();
        (buffer.count(), more)
    }

    #[test]
    fn a_buffer_is_full_when_its_memory_is_used_up() {
        let token = "t".repeat(4096);
        let line = |_| format!("{{\"client_id\":\"a\",\"token\":\"{token}\"}}\n");
        let each = size_of::<PackedDevice>() + 1 + token.len();
        let fit = CAPACITY.div_ceil(each);
        assert_eq!(filled(fit + 100, line), (fit, true));
        assert_eq!(filled(100, line), (100, false));
    }

    #[test]
    fn a_buffer_is_full_before_the_numbers_of_its_values_are_used_up() {
        let line = |n| format!("{{\"client_id\":\"a\",\"model\":\"{n}\"}}\n");
        assert_eq!(filled(usize::from(u16::MAX) + 100, line), (BUFFER_VALUES, true));
    }
}
