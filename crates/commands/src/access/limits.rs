//! Repeated failures to log in: the next answer takes longer, for the address and for the user.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Failures that cost nothing: people mistype.
const FREE: u32 = 3;
/// Each failure beyond doubles the wait, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(5);
/// After so long without a failure all is forgotten.
const FORGET: Duration = Duration::from_secs(300);
/// Remembered at most; beyond it those without a recent failure go first, and then all. Each takes less than 200 bytes.
const REMEMBERED_MAX: usize = 10_000;

#[derive(Debug, PartialEq, Eq, Hash)]
enum Whose {
    Address(IpAddr),
    User(String),
}

#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<HashMap<Whose, (u32, Instant)>>);

impl Failures {
    /// Notes a failure; how long the answer to it shall take.
    pub(crate) fn note(&self, address: IpAddr, user: &str, now: Instant) -> Duration {
        let mut failures = self.0.lock();
        if failures.len() >= REMEMBERED_MAX {
            failures.retain(|_, (_, last)| now.saturating_duration_since(*last) < FORGET);
            if failures.len() >= REMEMBERED_MAX {
                failures.clear();
            }
        }
        let whose = [Whose::Address(address), Whose::User(user.to_owned())];
        let counts = whose.into_iter().map(|whose| {
            let (count, last) = failures.entry(whose).or_insert((0, now));
            if now.saturating_duration_since(*last) >= FORGET {
                *count = 0;
            }
            (*count, *last) = (count.saturating_add(1), now);
            *count
        });
        let most = counts.max().unwrap_or(0);
        match most.checked_sub(FREE + 1) {
            None => Duration::ZERO,
            Some(beyond) => FIRST_WAIT.saturating_mul(1 << beyond.min(16)).min(WAIT_MAX),
        }
    }

    /// Somebody has logged in: he need not wait for what went wrong before.
    pub(crate) fn forget(&self, address: IpAddr, user: &str) {
        let mut failures = self.0.lock();
        failures.remove(&Whose::Address(address));
        failures.remove(&Whose::User(user.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_failure_waits_and_a_login_forgets() {
        let (failures, now) = (Failures::default(), Instant::now());
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let there: IpAddr = "10.0.0.1".parse().unwrap();
        for _ in 0..3 {
            assert_eq!(failures.note(here, "ann@admin", now), Duration::ZERO);
        }
        assert_eq!(failures.note(here, "ann@admin", now), FIRST_WAIT);
        assert_eq!(failures.note(here, "bob@admin", now), FIRST_WAIT * 2, "by address");
        assert_eq!(failures.note(there, "ann@admin", now), FIRST_WAIT * 2, "by user");
        for _ in 0..40 {
            failures.note(here, "ann@admin", now);
        }
        assert_eq!(failures.note(here, "ann@admin", now), WAIT_MAX);
        assert_eq!(failures.note(here, "ann@admin", now + FORGET), Duration::ZERO);
        failures.note(there, "carl@admin", now);
        failures.forget(here, "ann@admin");
        assert_eq!(failures.note(here, "ann@admin", now), Duration::ZERO);
    }
}
