//! The audit trail.

use push_index::Index;
use push_model::{
    audit::{Action, AuditEvent},
    time::UnixMillis,
};

use crate::index::support::app;

fn event(at: u64) -> AuditEvent {
    AuditEvent {
        at: UnixMillis(at),
        action: Action::AppRemoved.name().to_owned(),
        done: at.is_multiple_of(2),
        app: Some(app()),
        secret: None,
        message: None,
        client_id: None,
        admin_key: Some("web".parse().unwrap()),
        program: "test".to_owned(),
        user: Some("alice \"é\"".to_owned()),
        key: Some("root".parse().unwrap()),
        address: Some("2001:db8::1".parse().unwrap()),
        host: None,
    }
}

pub(crate) async fn events_are_listed_the_newest_first_as_they_were_appended(index: &dyn Index) {
    assert_eq!(index.audit(10).await.unwrap(), []);
    for at in 1..=3 {
        index.append_audit(&event(at), 10).await.unwrap();
    }
    assert_eq!(index.audit(10).await.unwrap(), [event(3), event(2), event(1)]);
    assert_eq!(index.audit(2).await.unwrap(), [event(3), event(2)]);
    assert_eq!(index.audit(0).await.unwrap(), []);
}

pub(crate) async fn no_more_than_the_newest_events_are_kept(index: &dyn Index) {
    for at in 1..=9 {
        index.append_audit(&event(at), 4).await.unwrap();
    }
    assert_eq!(index.audit(100).await.unwrap(), [event(9), event(8), event(7), event(6)]);
}
