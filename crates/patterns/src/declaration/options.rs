//! What all kinds of patterns can be told.

use kilim_bson::{Document, Path, RawValue, doc};
use kilim_error::{Error, ErrorCode, Result};

use crate::argument;

const PLACE: &str = "createPattern";

#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub mode: Mode,
    /// Targets that one change of a source writes in its own transaction; a job takes the rest.
    pub max_sync: u32,
    pub when_behind: WhenBehind,
    pub while_building: WhileBuilding,
    pub on_user_write: OnUserWrite,
    /// A date of the target that maintenance sets.
    pub touch: Option<Path>,
    pub create_indexes: bool,
    pub backfill: Backfill,
    pub scrub: Option<Scrub>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// With the write that causes it.
    Sync,
    /// By a job.
    Async,
}

/// What readers see of targets that a job has not reached yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenBehind {
    /// The value that they will have.
    Patch,
    /// The value that they have.
    Serve,
}

/// What readers see before all targets are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhileBuilding {
    Absent,
    /// An error.
    Fail,
}

/// What becomes of a user's value for a maintained path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUserWrite {
    /// Naming the path is refused; replacing what it lies in restores it.
    Smart,
    Reject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backfill {
    /// Documents of one commit.
    pub batch: u32,
    /// Pause after each.
    pub throttle_ms: u32,
}

/// A look at the data now and then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scrub {
    pub every_hours: u32,
    /// Which part of the documents is looked at.
    pub sample: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: Mode::Sync,
            max_sync: 1000,
            when_behind: WhenBehind::Patch,
            while_building: WhileBuilding::Absent,
            on_user_write: OnUserWrite::Smart,
            touch: None,
            create_indexes: true,
            backfill: Backfill { batch: 128, throttle_ms: 0 },
            scrub: None,
        }
    }
}

const MODES: [(&str, Mode); 2] = [("sync", Mode::Sync), ("async", Mode::Async)];
const WHEN_BEHIND: [(&str, WhenBehind); 2] = [("patch", WhenBehind::Patch), ("serve", WhenBehind::Serve)];
const WHILE_BUILDING: [(&str, WhileBuilding); 2] =
    [("absent", WhileBuilding::Absent), ("fail", WhileBuilding::Fail)];
const ON_USER_WRITE: [(&str, OnUserWrite); 2] =
    [("smart", OnUserWrite::Smart), ("reject", OnUserWrite::Reject)];

impl Options {
    /// Sets an option; false if there is none of that name.
    pub(super) fn set(&mut self, name: &str, value: RawValue<'_>) -> Result<bool> {
        match name {
            "mode" => self.mode = argument::choice(PLACE, name, value, &MODES)?,
            "maxSync" => self.max_sync = argument::whole(PLACE, name, value, 0, 1_000_000)? as u32,
            "whenBehind" => self.when_behind = argument::choice(PLACE, name, value, &WHEN_BEHIND)?,
            "whileBuilding" => self.while_building = argument::choice(PLACE, name, value, &WHILE_BUILDING)?,
            "onUserWrite" => self.on_user_write = argument::choice(PLACE, name, value, &ON_USER_WRITE)?,
            "touch" => {
                self.touch = match value {
                    RawValue::Null => None,
                    value => Some(Path::parse(argument::text(PLACE, name, value)?)),
                }
            }
            "createIndexes" => self.create_indexes = argument::boolean(PLACE, name, value)?,
            "backfill" => {
                for (field, value) in argument::document(PLACE, name, value)? {
                    let place = "createPattern.backfill";
                    match field {
                        "batch" => {
                            self.backfill.batch = argument::whole(place, field, value, 1, 100_000)? as u32;
                        }
                        "throttleMs" => {
                            self.backfill.throttle_ms =
                                argument::whole(place, field, value, 0, 60_000)? as u32;
                        }
                        _ => return Err(argument::unknown(place, field)),
                    }
                }
            }
            "scrub" => self.scrub = parse_scrub(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses what is said about being behind, for a kind that never is. `reason`: what it is not for, and why.
    pub(crate) fn check_never_behind(&self, reason: &str) -> Result<()> {
        let default = Options::default();
        let given = if self.mode != default.mode {
            "mode: \"async\""
        } else if self.max_sync != default.max_sync {
            "'maxSync'"
        } else if self.when_behind != default.when_behind {
            "whenBehind: \"serve\""
        } else {
            return Ok(());
        };
        Err(Error::user(ErrorCode::BadValue, format!("{given} is not for {reason}: leave it out")))
    }

    /// What differs from the default.
    pub fn to_document(&self) -> Document {
        let mut document = Document::new();
        self.append(&mut document);
        document
    }

    /// Appends what differs from the default.
    pub(super) fn append(&self, out: &mut Document) {
        let default = Options::default();
        fn word<T: PartialEq>(choices: &[(&'static str, T)], value: &T) -> &'static str {
            choices.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
        }
        if self.mode != default.mode {
            out.push("mode", word(&MODES, &self.mode));
        }
        if self.max_sync != default.max_sync {
            out.push("maxSync", i64::from(self.max_sync));
        }
        if self.when_behind != default.when_behind {
            out.push("whenBehind", word(&WHEN_BEHIND, &self.when_behind));
        }
        if self.while_building != default.while_building {
            out.push("whileBuilding", word(&WHILE_BUILDING, &self.while_building));
        }
        if self.on_user_write != default.on_user_write {
            out.push("onUserWrite", word(&ON_USER_WRITE, &self.on_user_write));
        }
        if let Some(touch) = &self.touch {
            out.push("touch", touch.as_str());
        }
        if !self.create_indexes {
            out.push("createIndexes", false);
        }
        if self.backfill != default.backfill {
            let Backfill { batch, throttle_ms } = self.backfill;
            out.push("backfill", doc! {"batch": i64::from(batch), "throttleMs": i64::from(throttle_ms)});
        }
        if let Some(Scrub { every_hours, sample }) = self.scrub {
            out.push("scrub", doc! {"everyHours": i64::from(every_hours), "sample": sample});
        }
    }
}

fn parse_scrub(value: RawValue<'_>) -> Result<Option<Scrub>> {
    let place = "createPattern.scrub";
    if let RawValue::Bool(false) | RawValue::Null = value {
        return Ok(None);
    }
    let mut scrub = Scrub { every_hours: 24, sample: 0.01 };
    for (field, value) in argument::document(PLACE, "scrub", value)? {
        match field {
            "everyHours" => scrub.every_hours = argument::whole(place, field, value, 1, 8760)? as u32,
            "sample" => scrub.sample = argument::share(place, field, value)?,
            _ => return Err(argument::unknown(place, field)),
        }
    }
    Ok(Some(scrub))
}
