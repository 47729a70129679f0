//! The Lua scripts of the index. The rules for all scripts are in [`push_store::redis::script`].
//!
//! `components/` has the scripts on running programs, `apps/` those on the records, arrivals, paces, secrets, usage and gone devices of apps, the audit trail and admin keys,
//! `dictionaries/` those on their dictionaries, `devices/` those on a shard, `users/` those on the devices of users.

use push_store::redis::{
    keys::SHARD_KEYS_LUA,
    script::{Script, script},
};

use super::layout::constants_lua;

const IN_TIME_LUA: &str = include_str!("devices/in_time.lua");
const SHARD_LUA: &str = include_str!("devices/shard.lua");
const PROFILE_LUA: &str = include_str!("devices/profile.lua");

/// A script on the keys of a shard.
fn of_shard(text: &str) -> Script {
    script(&[&constants_lua(), SHARD_KEYS_LUA, SHARD_LUA, text].concat())
}

/// A script on the keys of a shard that writes profiles.
fn with_profiles(text: &str) -> Script {
    script(&[&constants_lua(), SHARD_KEYS_LUA, SHARD_LUA, PROFILE_LUA, text].concat())
}

/// A script on the keys of a shard that writes profiles and codes.
fn with_profiles_in_time(text: &str) -> Script {
    script(&[IN_TIME_LUA, &constants_lua(), SHARD_KEYS_LUA, SHARD_LUA, PROFILE_LUA, text].concat())
}

/// Another script that writes codes.
fn in_time(text: &str) -> Script {
    script(&[IN_TIME_LUA, text].concat())
}

push_store::scripts! {
    create_app: script("apps/create_app.lua"),
    update_app: script("apps/update_app.lua"),
    replace_app: script("apps/replace_app.lua"),
    remove_app: script("apps/remove_app.lua"),
    begin_arrival: script("apps/begin_arrival.lua"),
    save_arrival: script("apps/save_arrival.lua"),
    finish_arrival: script("apps/finish_arrival.lua"),
    intern: script("dictionaries/intern.lua"),
    look: script("dictionaries/look.lua"),
    retire: script("dictionaries/retire.lua"),
    begin_batch: script("dictionaries/begin_batch.lua"),
    free: script("dictionaries/free.lua"),
    end_batch: script("dictionaries/end_batch.lua"),
    append_audit: script("apps/append_audit.lua"),
    add_admin_key: script("apps/add_admin_key.lua"),
    remove_admin_key: script("apps/remove_admin_key.lua"),
    use_admin_key: script("apps/use_admin_key.lua"),
    report_component: script("components/report.lua"),
    list_components: script("components/list.lua"),
    save_secret_uses: script("apps/save_secret_uses.lua"),
    add_usage: script("apps/add_usage.lua"),
    acquire_pace: script("apps/acquire_pace.lua"),
    count_gone: script("apps/count_gone.lua"),
    stop_removals: script("apps/stop_removals.lua"),
    list_gone: script("apps/list_gone.lua"),
    register: with_profiles_in_time("devices/register.lua"),
    change: in_time("devices/change.lua"),
    rewrite: with_profiles_in_time("devices/rewrite.lua"),
    remove: with_profiles("devices/remove.lua"),
    remove_shard: of_shard("devices/remove_shard.lua"),
    add_users: script("users/add.lua"),
    drop_users: script("users/drop.lua"),
    remove_users: script("users/remove.lua"),
}
