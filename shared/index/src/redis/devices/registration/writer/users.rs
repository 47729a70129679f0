//! Adding the devices of a round to their users.

use futures::future::join;
use push_model::app::AppKey;
use push_store::IndexError;

use super::{Round, Writer, plan::Plan};
use crate::redis::{devices::registration::put::PendingDevice, users::Pair};

impl Writer {
    /// Adds the devices to their users before they are written, and checks that the others are still there. A device
    /// whose user has as many as he may have is written without its user.
    pub(super) async fn add_users<'a>(
        &self,
        app: &AppKey,
        plan: &mut Plan<'a>,
        round: &mut Round<'a>,
    ) {
        let (mut pairs, mut numbers): (Vec<Pair<'_>>, Vec<usize>) = (Vec::new(), Vec::new());
        let names = |user: &str, before: &str| !user.is_empty() && user != before;
        for device in plan.puts.iter().filter(|device| names(device.profile.user(), "")) {
            pairs.push((device.profile.user(), &device.device.client_id));
            numbers.push(device.number);
        }
        for (device, stored) in &plan.rewrites {
            let user = stored.after.section().user();
            if names(user, &stored.user) {
                pairs.push((user, &device.device.client_id));
                numbers.push(device.number);
            }
        }
        let users = self.users(app);
        let kept: Vec<Pair<'_>> = plan.kept.iter().map(|(user, id, _)| (&**user, *id)).collect();
        if pairs.is_empty() && kept.is_empty() {
            return;
        }
        let (added, checked) = join(users.add(&pairs), users.check(&kept)).await;
        let mut failed: Vec<(usize, IndexError)> = Vec::new();
        for (number, added) in numbers.into_iter().zip(added) {
            match added {
                Ok(true) => {}
                Ok(false) => {
                    plan.without_user.insert(number);
                }
                Err(error) => failed.push((number, error)),
            }
        }
        let kept = plan.kept.iter().map(|(.., number)| *number);
        failed.extend(
            kept.zip(checked).filter_map(|(number, checked)| Some((number, checked.err()?))),
        );
        let Plan { changes, rewrites, puts, without_user, .. } = plan;
        for device in puts.iter_mut().filter(|device| without_user.contains(&device.number)) {
            device.profile = device.profile.without_user();
        }
        for (_, stored) in
            rewrites.iter_mut().filter(|(device, _)| without_user.contains(&device.number))
        {
            stored.after = std::mem::take(&mut stored.after).without_user();
        }
        let has_failed =
            |device: &PendingDevice<'_>| failed.iter().any(|(n, _)| *n == device.number);
        if !failed.is_empty() {
            changes.retain(|(device, _)| !has_failed(device));
            rewrites.retain(|(device, _)| !has_failed(device));
            puts.retain(|device| !has_failed(device));
            // A later outcome of a device takes the place of an earlier one.
            round.outcomes.extend(failed.into_iter().map(|(number, error)| (number, Err(error))));
        }
    }
}
