//! `failCommand`: makes chosen commands fail on request, so that drivers' retries can be tested.
//! Only with `--test-commands`.

use std::collections::HashSet;

use kilim_bson::Document;
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub struct FailPoints {
    fail_command: Mutex<Option<FailCommand>>,
}

#[derive(Debug, Clone)]
pub struct FailCommand {
    /// How many more times it fires; `None` is always.
    pub times: Option<u64>,
    /// How many matching commands pass before it fires.
    pub skip: u64,
    pub commands: HashSet<String>,
    pub app_name: Option<String>,
    pub error_code: Option<i32>,
    pub error_labels: Option<Vec<String>>,
    pub close_connection: bool,
    pub write_concern_error: Option<Document>,
    pub block_ms: u64,
}

impl FailPoints {
    pub fn set(&self, fail_command: Option<FailCommand>) {
        *self.fail_command.lock() = fail_command;
    }

    /// Whether this command is to fail now, and how.
    pub fn fire(&self, command: &str, app_name: Option<&str>) -> Option<FailCommand> {
        let mut slot = self.fail_command.lock();
        let point = slot.as_mut()?;
        if !point.commands.contains(command) {
            return None;
        }
        if point.app_name.is_some() && point.app_name.as_deref() != app_name {
            return None;
        }
        if point.skip > 0 {
            point.skip -= 1;
            return None;
        }
        let fired = point.clone();
        if let Some(times) = &mut point.times {
            *times -= 1;
            if *times == 0 {
                *slot = None;
            }
        }
        Some(fired)
    }
}
