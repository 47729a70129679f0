//! Prints a page of devices.

use push_model::attributes::Attribute;
use push_operator::device::DevicePage;

use crate::output::{Output, Table};

/// Prints the devices, and a note with the cursor of the next page.
pub(super) fn print(page: &DevicePage, out: Output) -> anyhow::Result<()> {
    let mut table = Table::new(&["CLIENT", "TRANSPORT", "COUNTRY", "LANGUAGE", "MODEL", "VERSION"])
        .without_first(&["LANGUAGE", "MODEL", "COUNTRY", "VERSION"]);
    for device in &page.devices {
        let value = |attribute| device.attributes.get(attribute).unwrap_or("-").to_owned();
        table.row([
            device.client_id.to_string(),
            device.transport.name().to_owned(),
            value(Attribute::Country),
            value(Attribute::Language),
            value(Attribute::Model),
            value(Attribute::AppVersion),
        ]);
    }
    if page.unreadable > 0 {
        let left_out = page.unreadable;
        out.note(format_args!("{left_out} devices whose records cannot be read were left out"));
    }
    if let Some(cursor) = page.next_cursor.as_ref().filter(|_| !out.json) {
        out.note(format_args!("there are more: --cursor {cursor}"));
    }
    let text = if page.devices.is_empty() { "no devices".to_owned() } else { table.to_string() };
    out.result(text, page)
}
