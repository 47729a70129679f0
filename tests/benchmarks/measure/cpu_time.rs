//! Processor time of programs, user and system. Of all that is measured here, other programs on the
//! machine disturb it least.

/// Clock ticks a second in `/proc/PID/stat` (`USER_HZ`).
const TICKS: f64 = 100.0;

/// Measures the processor time of programs from its start.
pub(crate) struct CpuMeter<const N: usize> {
    programs: [u32; N],
    before: Option<[f64; N]>,
}

impl<const N: usize> CpuMeter<N> {
    /// Measures each of these processes.
    pub(crate) fn start(programs: [u32; N]) -> Self {
        Self { programs, before: used(programs) }
    }

    /// The microseconds that each used since the start, divided by the number of requests; `None`
    /// where the system does not tell.
    pub(crate) fn per_request(&self, requests: f64) -> Option<[f64; N]> {
        let (before, mut spent) = (self.before?, used(self.programs)?);
        for (spent, before) in spent.iter_mut().zip(before) {
            *spent = (*spent - before) * 1e6 / requests;
        }
        Some(spent)
    }
}

/// Returns the seconds that each program has used so far.
fn used<const N: usize>(programs: [u32; N]) -> Option<[f64; N]> {
    let mut used = [0.0; N];
    for (used, program) in used.iter_mut().zip(programs) {
        *used = seconds(program)?;
    }
    Some(used)
}

fn seconds(process: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The fields before are the process id and the name in parentheses, which may have spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let (user, system): (f64, f64) = (fields.get(11)?.parse().ok()?, fields.get(12)?.parse().ok()?);
    Some((user + system) / TICKS)
}
