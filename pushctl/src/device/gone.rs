//! Prints devices that were removed as gone.

use push_operator::device::Gone;

use crate::output::{Output, Table};

/// Prints the devices, and a note if no further ones are removed.
pub(super) fn print(gone: &Gone, out: Output) -> anyhow::Result<()> {
    if let Some(until) = gone.removals_stopped_until {
        out.note(format_args!(
            "too many devices were reported as gone: no more are removed until {until}, see `pushctl doctor`"
        ));
    }
    let mut table = Table::new(&["CLIENT", "TRANSPORT", "CODE", "REMOVED"])
        .without_first(&["CODE", "TRANSPORT"]);
    for device in &gone.devices {
        table.row([
            device.client_id.to_string(),
            device.transport.to_owned(),
            device.code.to_string(),
            device.removed_at.to_string(),
        ]);
    }
    let text = if gone.devices.is_empty() { "no devices".to_owned() } else { table.to_string() };
    out.result(text, &gone.devices)
}
