//! Processor time of programs, user and system. Other programs on the machine disturb it less than
//! anything else that is measured here.

/// Clock ticks of a second, as Linux shows them to every program.
const TICKS: f64 = 100.0;

/// What some programs, or groups of them, have used since some moment.
pub(crate) struct Spent<const N: usize> {
    groups: [Vec<u32>; N],
    before: Option<[f64; N]>,
}

impl<const N: usize> Spent<N> {
    /// By each of these processes from now on.
    pub(crate) fn by(programs: [u32; N]) -> Self {
        Self::by_groups(programs.map(|program| vec![program]))
    }

    /// By these groups of processes from now on, each together.
    pub(crate) fn by_groups(groups: [Vec<u32>; N]) -> Self {
        let before = used(&groups);
        Self { groups, before }
    }

    /// Microseconds of each for each of so many requests; none where the system does not tell.
    pub(crate) fn per(&self, requests: f64) -> Option<[f64; N]> {
        let (before, mut spent) = (self.before?, used(&self.groups)?);
        for (spent, before) in spent.iter_mut().zip(before) {
            *spent = (*spent - before) * 1e6 / requests;
        }
        Some(spent)
    }
}

/// The seconds that each group has used so far.
fn used<const N: usize>(groups: &[Vec<u32>; N]) -> Option<[f64; N]> {
    let mut used = [0.0; N];
    for (used, group) in used.iter_mut().zip(groups) {
        for program in group {
            *used += seconds(*program)?;
        }
    }
    Some(used)
}

fn seconds(process: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // What stands before is the name, which may have spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let (user, system): (f64, f64) = (fields.get(11)?.parse().ok()?, fields.get(12)?.parse().ok()?);
    Some((user + system) / TICKS)
}
