//! A progress bar: one line on standard error, drawn over itself, gone when the work is done.
//!
//! Nothing is drawn unless both standard output and standard error are terminals: neither logs nor pipes
//! are for animations.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::output::one_line;
use crate::table::terminal_columns;
use crate::text::grouped;

/// The bar takes what the words leave, between these.
const BAR_LEAST: usize = 6;
const BAR_MOST: usize = 24;
/// Quick work shows nothing: a line that flashes by disturbs.
const PATIENCE: Duration = Duration::from_millis(250);
const TURN: Duration = Duration::from_millis(100);

pub(crate) struct Progress {
    label: String,
    visible: bool,
    started: Instant,
    turns: usize,
    drawn: bool,
}

impl Progress {
    pub(crate) fn new(label: impl Into<String>) -> Progress {
        let visible = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        let label = one_line(&label.into()).into_owned();
        Progress { label, visible, started: Instant::now(), turns: 0, drawn: false }
    }

    /// Draws how far the work is, if that is known.
    pub(crate) fn show(&mut self, known: Option<(i64, i64)>) {
        if !self.visible || self.started.elapsed() < PATIENCE {
            return;
        }
        // A full line would wrap on some terminals.
        let columns = terminal_columns().unwrap_or(80).saturating_sub(1);
        let line = line(&self.label, known, self.started.elapsed(), self.turns, columns);
        let line: String = line.chars().take(columns).collect();
        self.turns += 1;
        self.drawn = true;
        let mut terminal = std::io::stderr().lock();
        let _ = write!(terminal, "\r\x1b[K{line}");
        let _ = terminal.flush();
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }

    /// Does `work` while another thread draws what `look` sees.
    pub(crate) fn during<T>(
        &mut self,
        mut look: impl FnMut() -> Option<(i64, i64)> + Send,
        work: impl FnOnce() -> T,
    ) -> T {
        if !self.visible {
            return work();
        }
        let done = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            let drawing = scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    std::thread::park_timeout(TURN);
                    self.show(look());
                }
            });
            let result = work();
            done.store(true, Ordering::Release);
            drawing.thread().unpark();
            result
        });
        self.clear();
        result
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn line(label: &str, known: Option<(i64, i64)>, elapsed: Duration, turns: usize, columns: usize) -> String {
    let seconds = elapsed.as_secs();
    let time = format!("{:02}:{:02}", seconds / 60, seconds % 60);
    match known {
        Some((done, total)) if total > 0 => {
            let done = done.clamp(0, total);
            let share = done as f64 / total as f64;
            let percent = (share * 100.0) as u32;
            let words = format!("{percent:>3}%  {} of {}  {time}", grouped(done), grouped(total));
            let left = columns.saturating_sub(label.chars().count() + words.chars().count() + 3);
            let length = left.clamp(BAR_LEAST, BAR_MOST);
            let full = (share * length as f64) as usize;
            let bar = "━".repeat(full) + &"─".repeat(length - full);
            format!("{label}  {bar} {words}")
        }
        _ => format!("{label}  {}  {time}", ['|', '/', '-', '\\'][turns % 4]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_share_and_time() {
        let second = Duration::from_secs(75);
        assert_eq!(
            line("filling", Some((1500, 3000)), second, 0, 80),
            "filling  ━━━━━━━━━━━━────────────  50%  1,500 of 3,000  01:15"
        );
        let narrow = line("filling", Some((1500, 3000)), second, 0, 45);
        assert_eq!(narrow, "filling  ━━━━────  50%  1,500 of 3,000  01:15");
        assert_eq!(line("verifying", None, second, 1, 80), "verifying  /  01:15");
        assert!(line("x", Some((9, 3)), second, 0, 80).contains("100%"));
    }
}
