//! Shares the ledger among apps when it is at its limit.

use std::collections::BTreeMap;

/// Returns how much each holder has above its share, if all of them together hold more than
/// `limit`.
///
/// The share is the largest amount for which everything within the shares fits: a holder that has less
/// loses nothing, and the others keep as much as each other.
pub fn over_share<K: Ord + Copy>(held: &BTreeMap<K, u64>, limit: u64) -> BTreeMap<K, u64> {
    let mut amounts: Vec<u64> = held.values().copied().collect();
    amounts.sort_unstable();
    let (mut room, mut share) = (limit, u64::MAX);
    for (amount, holders) in amounts.iter().zip((1..=amounts.len() as u64).rev()) {
        if *amount > room / holders {
            share = room / holders;
            break;
        }
        room -= amount;
    }
    let excess = held.iter().map(|(holder, amount)| (*holder, amount.saturating_sub(share)));
    excess.filter(|(_, excess)| *excess > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excess(held: &[u64], limit: u64) -> Vec<(usize, u64)> {
        over_share(&held.iter().copied().enumerate().collect(), limit).into_iter().collect()
    }

    #[test]
    fn who_holds_least_loses_nothing_and_the_others_keep_as_much_as_each_other() {
        assert_eq!(excess(&[10, 20, 30], 60), []);
        assert_eq!(excess(&[10, 20, 30], 50), [(2, 10)]);
        assert_eq!(excess(&[10, 90, 100], 70), [(1, 60), (2, 70)]);
        assert_eq!(excess(&[5, 5], 0), [(0, 5), (1, 5)]);
        assert_eq!(excess(&[], 0), []);
    }

    #[test]
    fn what_is_left_is_within_the_limit_and_a_quiet_holder_keeps_all_beside_a_thousand_loud_ones() {
        let held: Vec<u64> = (0..1000).map(|loud| 1000 + loud).chain([7]).collect();
        let over = excess(&held, 500_007);
        let lost: u64 = over.iter().map(|(_, excess)| excess).sum();
        assert_eq!(held.iter().sum::<u64>() - lost, 500_007);
        assert!(over.iter().all(|(holder, _)| *holder < 1000));
    }
}
