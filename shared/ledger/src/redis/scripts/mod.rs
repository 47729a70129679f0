//! The Lua scripts of the ledger. The rules for all scripts are in [`push_store::redis::script`].
//!
//! `broadcasts/` has the scripts for the devices left of broadcasts, this folder the scripts for
//! entries.

use push_store::redis::{
    connection::CORRUPT,
    script::{Script, script},
};

const PAGES_LUA: &str = include_str!("pages.lua");

/// A script that may begin a page of the ledger.
fn of_page(text: &str) -> Script {
    script(&[PAGES_LUA, text].concat())
}

/// A script on an expanded entry that may find it unreadable.
fn of_entry(text: &str) -> Script {
    script(&format!("local CORRUPT = '{CORRUPT}'\n{text}"))
}

push_store::scripts! {
    list_broadcast: script("broadcasts/list.lua"),
    set_devices_left: script("broadcasts/set_left.lua"),
    begin_records: of_page("begin_records.lua"),
    swap_records: of_page("swap_records.lua"),
    begin_expanded: of_page("begin_expanded.lua"),
    expand: script("expand.lua"),
    compact: script("compact.lua"),
    plan: script("plan.lua"),
    advance: of_entry("advance.lua"),
    recall: of_page("recall.lua"),
    evict: script("evict.lua"),
}
