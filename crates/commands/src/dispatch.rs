//! From a request to a reply: finds the command, takes up its session, runs it, finishes the reply.

use std::sync::Arc;
use std::time::Duration;

use kilim_auth::Action;
use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_engine::fail_point::{FailCommand, FailPoint};
use kilim_engine::operation::{Expected, Operation};
use kilim_engine::unit::{Unit, not_in_transaction};
use kilim_engine::write::user_writes_blocked;
use kilim_engine::{Durability, Engine, Namespace, is_internal};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::interrupt;

use crate::access;
use crate::argument::{Argument, as_double};
use crate::client::Client;
use crate::command::pattern_name::told_of_pattern;
use crate::command::{change_stream, time_series};
use crate::concern::{ReadConcern, WriteConcern};
use crate::ended::{Ended, Trace};
use crate::privilege::Needs;
use crate::registry::{self, COMMANDS, CommandSpec, ReadLevels};
use crate::reply::{self, Reply};
use crate::request::{Generic, Request};
use crate::suspended::Suspended;
use crate::{kept, session, stable};

/// A command being run.
pub struct Call<'c, 'r> {
    pub client: &'c mut Client,
    pub engine: &'c Arc<Engine>,
    pub operation: Arc<Operation>,
    pub spec: &'static CommandSpec,
    pub request: &'c Request<'r>,
    pub body: RawDocument<'r>,
    pub generic: Generic<'r>,
    /// Where it reads and writes: its transaction's, if it is in one.
    pub unit: Unit<'c>,
    /// Set where a reply of `ok: 1` reports failed statements: they end a transaction too.
    pub statement_failed: bool,
    pub exhaust_next: Option<Document>,
    pub wait: Wait,
    /// What will be told of it.
    pub trace: Trace,
}

impl Call<'_, '_> {
    pub fn durability(&self) -> Durability {
        WriteConcern::durability(self.generic.write_concern.as_ref(), self.engine.options.durability)
    }

    /// The collection that the command's first field names, for what is about the collection itself and not its documents:
    /// the name of an older version is refused with the name of the collection.
    pub fn collection(&self) -> Result<Namespace> {
        let namespace = self.namespace()?;
        self.engine.catalog().check_no_alias(&namespace)?;
        Ok(namespace)
    }

    /// The collection or view that the command's first field names.
    pub fn namespace(&self) -> Result<Namespace> {
        let (name, value) = self.body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
        // mongod has two ways of reading it.
        let code = match name {
            "count"
            | "distinct"
            | "collStats"
            | "collstats"
            | "validate"
            | "compact"
            | "planCacheClear"
            | "planCacheClearFilters"
            | "planCacheListFilters"
            | "planCacheSetFilter" => ErrorCode::InvalidNamespace,
            _ => ErrorCode::BadValue,
        };
        match value.as_str() {
            Some(collection) => Namespace::parse(self.generic.database, collection),
            None => Err(Error::user(
                code,
                format!("collection name has invalid type {}", value.element_type().name()),
            )),
        }
    }

    /// Takes note of which collection is meant by a name, if the command says so by `collectionUUID`.
    pub fn expect(&self, command: &'static str, namespace: &Namespace) -> Result<()> {
        let Some(value) = self.generic.collection_uuid else { return Ok(()) };
        if matches!(value, RawValue::Null | RawValue::Undefined) {
            return Ok(());
        }
        let argument = Argument { command, name: "collectionUUID", value };
        self.operation.expect(vec![Expected { namespace: namespace.clone(), uuid: argument.uuid()? }]);
        // The name of a time-series collection is that of a view, which has no id.
        match time_series::of(self, namespace) {
            Some(_) => self.engine.check_expected(&self.operation, namespace, None),
            None => Ok(()),
        }
    }

    /// What currentOp calls it.
    pub fn describe(&self, kind: &'static str) {
        self.operation.set_kind(kind);
    }
}

/// Commands larger than this are shown by currentOp without their contents.
const DESCRIBED_BYTES_MAX: usize = 2048;

/// A command as currentOp shows it: whole, or where it is large, what tells it from others.
pub fn shown(body: RawDocument<'_>) -> Document {
    if body.as_bytes().len() <= DESCRIBED_BYTES_MAX {
        return body.to_document();
    }
    let telling = |position: usize, name: &str| position == 0 || matches!(name, "$db" | "lsid");
    let fields = body.iter().enumerate().filter(|(position, (name, _))| telling(*position, name));
    let mut document: Document = fields.map(|(_, (name, value))| (name, value.to_value())).collect();
    document.push("$truncated", true);
    document
}

pub fn run(client: &mut Client, request: Request<'_>) -> Reply {
    run_as(client, request, false).unwrap_or_else(|| {
        Reply::of(reply::error_document(&Error::bug("a command was suspended that nobody goes on with")))
    })
}

/// None where the reply has to wait ([`Client::suspended`]). The same request is then to be run again.
pub fn run_or_suspend(client: &mut Client, request: Request<'_>) -> Option<Reply> {
    run_as(client, request, true)
}

fn run_as(client: &mut Client, request: Request<'_>, may_suspend: bool) -> Option<Reply> {
    let engine = client.engine.clone();
    let suspended = client.suspended.take();
    let running = match &suspended {
        Some(suspended) => engine.operations.resume(suspended.operation.clone()),
        None => {
            engine.metrics.requests.add(1);
            engine.operations.start(client.id)
        }
    };
    let operation = Arc::clone(&running);
    let _interrupt = interrupt::install(operation.clone());
    let mut outcome = Outcome::default();
    let found = find(&engine, &request);
    let place = found.as_ref().ok().copied();
    let wait = Wait { may_suspend: may_suspend && !request.exhaust_allowed, suspended };
    let result = found.and_then(|place| {
        run_found(client, &engine, operation, &request, &COMMANDS[place], wait, &mut outcome)
    });
    if client.suspended.is_some() {
        running.suspend();
        return None;
    }
    let (mut document, error) = match result {
        Ok(mut document) => {
            document.push("ok", 1.0);
            (document, None)
        }
        Err(error) => {
            let mut document = reply::error_document(&error);
            let mut labels = reply::labels(&error, outcome.in_transaction, outcome.committing);
            labels.extend(outcome.retryable_label(error.code()));
            labels.extend(outcome.resumable_label(request.body, error.code()));
            if let Some(forced) = &outcome.forced_labels {
                labels = forced.iter().map(String::as_str).collect();
            }
            reply::push_labels(&mut document, &labels);
            (document, Some(error))
        }
    };
    if let Some(error) = outcome.write_concern_error.take() {
        let code = error.get("code").and_then(as_double).map(|code| ErrorCode(code as i32));
        let label = code.and_then(|code| outcome.retryable_label(code));
        document.push("writeConcernError", error);
        if document.get("errorLabels").is_none() {
            let forced = outcome.forced_labels.iter().flatten().map(String::as_str);
            let labels: Vec<&str> = match outcome.forced_labels {
                Some(_) => forced.collect(),
                None => label.into_iter().collect(),
            };
            reply::push_labels(&mut document, &labels);
        }
    }
    if !request.legacy_hello && !client.in_process {
        let now = engine.store.now();
        let newest = [outcome.committed, engine.store.last_commit_time(), now];
        let operation_time = newest.into_iter().find(|&time| time > 0).unwrap_or(now);
        document = reply::with_times(document, now, operation_time);
    }
    if let Some(place) = place {
        let ended = Ended {
            client,
            engine: &engine,
            operation: &running,
            request: &request,
            spec: &COMMANDS[place],
            place,
            database: outcome.database.or_else(|| request.body.get("$db").and_then(RawValue::as_str)),
            trace: &outcome.trace,
            error: error.as_ref(),
            reply: document.as_raw(),
        };
        ended.note();
    }
    Some(Reply { document, exhaust_next: outcome.exhaust_next, close_connection: outcome.close_connection })
}

/// How a command may wait.
pub struct Wait {
    /// Without its thread: it leaves a [`Suspended`] with the client and returns.
    pub may_suspend: bool,
    /// It has waited so before, and goes on with this.
    pub suspended: Option<Suspended>,
}

/// What the reply must know beside the command's own result.
#[derive(Default)]
pub struct Outcome<'r> {
    /// The database, once it is known.
    pub database: Option<&'r str>,
    pub in_transaction: bool,
    pub committing: bool,
    pub retryable: bool,
    pub committed: u64,
    pub exhaust_next: Option<Document>,
    pub close_connection: bool,
    pub write_concern_error: Option<Document>,
    /// Labels that a fail point asks for, instead of the usual ones.
    pub forced_labels: Option<Vec<String>>,
    pub trace: Trace,
}

impl Outcome<'_> {
    /// Drivers repeat a retryable write after these.
    fn retryable_label(&self, code: ErrorCode) -> Option<&'static str> {
        const RETRYABLE: [i32; 12] = [6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];
        let applies = (self.retryable || self.committing) && RETRYABLE.contains(&code.0);
        applies.then_some("RetryableWriteError")
    }

    /// Drivers open a change stream again after these, where it was.
    fn resumable_label(&self, command: RawDocument<'_>, code: ErrorCode) -> Option<&'static str> {
        const RESUMABLE: [i32; 18] =
            [6, 7, 63, 89, 91, 133, 150, 189, 234, 262, 317, 358, 9001, 10107, 11600, 11602, 13435, 13436];
        if !RESUMABLE.contains(&code.0) {
            return None;
        }
        let originating = self.trace.originating.as_deref().map(Document::as_raw);
        let opened_by = originating.unwrap_or(command);
        change_stream::is_opened_by(opened_by).then_some("ResumableChangeStreamError")
    }
}

/// The command's place in the table.
fn find(engine: &Engine, request: &Request<'_>) -> Result<usize> {
    let Some((name, _)) = request.body.iter().next() else {
        return Err(Error::user(ErrorCode::CommandNotFound, "no such command: ''"));
    };
    let place = registry::place(name)
        .filter(|&place| !COMMANDS[place].test_only || engine.options.test_commands)
        .ok_or_else(|| Error::user(ErrorCode::CommandNotFound, format!("no such command: '{name}'")))?;
    if request.legacy_hello && !matches!(COMMANDS[place].name, "hello" | "isMaster" | "ping" | "buildInfo") {
        return Err(Error::user(
            ErrorCode::CommandNotSupported,
            format!("Unsupported OP_QUERY command: {name}. The client driver may require an upgrade."),
        ));
    }
    Ok(place)
}

fn run_found<'r>(
    client: &mut Client,
    engine: &Arc<Engine>,
    operation: Arc<Operation>,
    request: &Request<'r>,
    spec: &'static CommandSpec,
    wait: Wait,
    outcome: &mut Outcome<'r>,
) -> Result<Document> {
    // As on mongod, what has a counter of its own is no "command".
    if !matches!(spec.name, "find" | "getMore" | "insert" | "update" | "delete") {
        engine.metrics.commands.add(1);
    }
    // What was asked when the command first ran need not be asked again, unless rights have changed since.
    let is_resumed = wait.suspended.is_some() && !access::is_outdated(client);
    if !is_resumed {
        access::admit(client, engine, &operation, spec)?;
        kept::recall(engine, &operation)?;
    }
    let mut generic = Generic::parse(spec, request)?;
    outcome.database = Some(generic.database);
    if spec.admin_only && generic.database != "admin" {
        return Err(Error::user(
            ErrorCode::Unauthorized,
            format!("{} may only be run against the admin database.", spec.name),
        ));
    }
    if !is_resumed {
        check_request(client, engine, &operation, request, spec, &generic)?;
    }
    operation.set_time_limit(time_limit(engine, &generic)?);
    let named = generic.transaction()?;
    outcome.in_transaction = named.is_some();
    outcome.committing = spec.name == "commitTransaction";
    outcome.retryable = named.is_none() && generic.transaction_number.is_some();
    match named {
        Some(_) if spec.ends_transaction => {}
        Some(named) => check_in_transaction(spec, &generic, named.start, request)?,
        None => check_concerns(spec, &generic)?,
    }
    if named.is_none() && spec.writes && generic.write_concern.is_none() {
        let default = engine.settings.default_write_concern();
        generic.write_concern = default.map(|concern| WriteConcern::of_default(&concern)).transpose()?;
    }
    let bypasses_write_block = engine.settings.user_writes_blocked()
        && client.access.is_enforced()
        && access::may_on_cluster(client, Action::named("bypassWriteBlockingMode"));
    if spec.changes_schema() && engine.settings.user_writes_blocked() && !bypasses_write_block {
        check_not_blocked(&generic, request.body)?;
    }
    if wait.suspended.is_none() {
        fail_if_asked(client, engine, spec, &generic, request.body, outcome)?;
    }
    let write_fails = match outcome.retryable && engine.options.test_commands {
        true => engine.fail_points.fire(FailPoint::OnPrimaryTransactionalWrite),
        false => None,
    };

    // Before it holds anything that others wait for.
    let _entered = match writes(spec, request.body) {
        true => Some(engine.fsync_lock.enter(&operation)?),
        false => None,
    };
    let session = match generic.session {
        // Open to everybody, so that strangers would make sessions by it.
        Some(_) if matches!(spec.needs, Needs::Nothing) => None,
        Some(id) => {
            let session = engine.sessions.get(&engine.store, id)?;
            if !session.is_open_to(client.login.identity.as_ref().map(|identity| &identity.user)) {
                return Err(Error::user(ErrorCode::Unauthorized, "the session belongs to another user"));
            }
            Some(session)
        }
        None if generic.transaction_number.is_some() => {
            return Err(Error::user(
                ErrorCode::InvalidOptions,
                "Transaction number requires a session ID to also be specified",
            ));
        }
        None => None,
    };
    let numbered =
        session.as_ref().filter(|_| generic.transaction_number.is_some() && !spec.ends_transaction);
    let mut state = numbered.map(|session| session.check_out());
    let durability = WriteConcern::durability(generic.write_concern.as_ref(), engine.options.durability);
    let mut unit = session::begin(engine, &operation, spec, &generic, state.as_deref_mut(), durability)?;
    unit.cause = client.cause();
    unit.bypasses_write_block = bypasses_write_block;

    let body = request.body;
    let mut call = Call {
        client,
        engine,
        operation,
        spec,
        request,
        body,
        generic,
        unit,
        statement_failed: false,
        exhaust_next: None,
        wait,
        trace: Trace::default(),
    };
    let result = match write_fails.as_ref().and_then(|data| data.get("failBeforeCommitExceptionCode")) {
        Some(code) => fail_write(spec, code),
        None => (spec.run)(&mut call).map_err(|error| told_of_pattern(error, &call)),
    };
    if let Some(data) = write_fails {
        outcome.close_connection |= !matches!(data.get("closeConnection"), Some(RawValue::Bool(false)));
    }
    if result.is_ok() && outcome.write_concern_error.is_none() {
        outcome.write_concern_error = call.generic.write_concern.as_ref().and_then(WriteConcern::error);
    }
    outcome.exhaust_next = call.exhaust_next.take();
    outcome.trace = std::mem::take(&mut call.trace);
    outcome.trace.figures.add(std::mem::take(&mut call.unit.figures));
    let (access, database) = (call.client.access.clone(), call.generic.database);
    let ended = session::end(call, state.as_deref_mut(), result, outcome);
    access.note_end(spec, database, body);
    ended
}

/// Whether the command may be run by this client with these arguments; and what currentOp shows of it.
fn check_request(
    client: &mut Client,
    engine: &Arc<Engine>,
    operation: &Operation,
    request: &Request<'_>,
    spec: &'static CommandSpec,
    generic: &Generic<'_>,
) -> Result<()> {
    access::authorize(client, engine, spec, generic.database, request)?;
    check_times(engine, generic)?;
    if generic.is_api_strict() {
        stable::check_command(engine, generic.database, request.body)?;
    }
    if engine.settings.requires_api_version() && generic.api.is_none() {
        let message = "The apiVersion parameter is required, please configure your MongoClient's API version";
        return Err(Error::location(498_870, message));
    }
    operation.describe(match access::redacted(spec, request.body) {
        Some(redacted) => shown(redacted.as_raw()),
        None => shown(request.body),
    });
    if ends_with_client(spec, request.body) {
        operation.end_with_client();
    }
    Ok(())
}

/// Whether a command may write.
fn writes(spec: &CommandSpec, body: RawDocument<'_>) -> bool {
    let is_writer = |stage: RawValue<'_>| {
        let name = stage.as_document().and_then(|stage| stage.iter().next()).map(|(name, _)| name);
        matches!(name, Some("$out" | "$merge"))
    };
    match spec.name {
        "aggregate" => {
            let stages = body.get("pipeline").and_then(RawValue::as_array);
            stages.is_some_and(|stages| stages.iter().any(is_writer))
        }
        "abortTransaction" => false,
        _ => spec.writes,
    }
}

/// Whether a command is of no use once nobody reads its reply. A write is done also for a client that does not wait.
fn ends_with_client(spec: &CommandSpec, body: RawDocument<'_>) -> bool {
    match spec.name {
        "aggregate" => !writes(spec, body),
        "find" | "getMore" | "count" | "distinct" | "explain" | "hello" | "isMaster" | "dbHash"
        | "dataSize" | "collStats" | "dbStats" | "validate" | "waitPattern" | "listCollections"
        | "listIndexes" => true,
        _ => false,
    }
}

/// A client's clock may be no further ahead than this, as on MongoDB.
const CLUSTER_TIME_AHEAD_SECONDS: u64 = 365 * 24 * 60 * 60;

/// Refuses times that no server can have told the client.
///
/// Every snapshot holds whatever was told before it was taken. A later time is one that nothing was committed at: it
/// was made up, or it comes from another server. The latter also sends the `$clusterTime` that it heard.
fn check_times(engine: &Engine, generic: &Generic<'_>) -> Result<()> {
    let Some(latest) = generic.after_cluster_time.max(generic.cluster_time) else { return Ok(()) };
    // The clock has not ticked since the newest commit, which is later then.
    let now = engine.store.now().max(engine.store.last_commit_time());
    if latest <= now {
        return Ok(());
    }
    let heard = generic.cluster_time.unwrap_or(0);
    if (heard >> 32).saturating_sub(now >> 32) > CLUSTER_TIME_AHEAD_SECONDS {
        return Err(Error::user(
            ErrorCode::ClusterTimeFailsRateLimiter,
            format!(
                "New $clusterTime, {}, is too far from this node's wall clock time, {}.",
                heard >> 32,
                now >> 32
            ),
        ));
    }
    match generic.after_cluster_time {
        Some(after) if after > now.max(heard) => Err(Error::user(
            ErrorCode::InvalidOptions,
            "readConcern afterClusterTime value must not be greater than the current clusterTime",
        )),
        _ => Ok(()),
    }
}

/// Outside of transactions each command has concerns of its own.
fn check_concerns(spec: &CommandSpec, generic: &Generic<'_>) -> Result<()> {
    let refuse = |message: String| Err(Error::user(ErrorCode::InvalidOptions, message));
    let allowed = match generic.read_concern {
        None | Some(ReadConcern::Local) => true,
        Some(ReadConcern::Snapshot { .. }) => spec.reads == ReadLevels::All,
        Some(_) => spec.reads != ReadLevels::LocalOnly,
    };
    match allowed {
        true => Ok(()),
        false => refuse(format!("Command {} does not support this level of readConcern", spec.name)),
    }
}

fn check_in_transaction(
    spec: &CommandSpec,
    generic: &Generic<'_>,
    start: bool,
    request: &Request<'_>,
) -> Result<()> {
    if !spec.in_transaction {
        return Err(not_in_transaction(spec.name));
    }
    let unsupported =
        |message: String| Err(Error::user(ErrorCode::OperationNotSupportedInTransaction, message));
    if matches!(generic.database, "admin" | "config" | "local") {
        return unsupported(format!(
            "Cannot run command against the '{}' database in a transaction.",
            generic.database
        ));
    }
    if matches!(request.body.iter().next(), Some((_, RawValue::String("system.profile")))) {
        return unsupported(
            "Cannot run command against the system.profile collection in a transaction.".to_owned(),
        );
    }
    let refuse = |message: &str| Err(Error::user(ErrorCode::InvalidOptions, message));
    if generic.write_concern.is_some() {
        return refuse("writeConcern is not allowed within a multi-statement transaction");
    }
    match generic.read_concern {
        None => Ok(()),
        Some(_) if !start => refuse("Only the first command in a transaction may specify a readConcern"),
        Some(ReadConcern::Local | ReadConcern::Majority | ReadConcern::Snapshot { .. }) => Ok(()),
        Some(_) => refuse(
            "The readConcern level must be either 'local' (default), 'majority' or 'snapshot' in order to run in a \
             transaction",
        ),
    }
}

/// How long a command may run, unless a fail point says otherwise.
fn time_limit(engine: &Engine, generic: &Generic<'_>) -> Result<Option<Duration>> {
    if generic.time_limit.is_none() || !engine.options.test_commands {
        return Ok(generic.time_limit);
    }
    if engine.fail_points.fire(FailPoint::MaxTimeAlwaysTimeOut).is_some() {
        return Err(Error::user(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"));
    }
    let never = engine.fail_points.fire(FailPoint::MaxTimeNeverTimeOut).is_some();
    Ok(generic.time_limit.filter(|_| !never))
}

/// Refuses a schema change of a user's data while `setUserWriteBlockMode` is on.
fn check_not_blocked(generic: &Generic<'_>, body: RawDocument<'_>) -> Result<()> {
    // renameCollection runs on `admin`, and names whole namespaces.
    let named = [body.get("renameCollection"), body.get("to")].into_iter().flatten();
    let mut databases = named
        .filter_map(|name| name.as_str()?.split_once('.').map(|(database, _)| database))
        .chain([generic.database]);
    match databases.any(|database| !is_internal(database)) {
        true => Err(user_writes_blocked()),
        false => Ok(()),
    }
}

/// The answer of a numbered write that a fail point keeps from being done.
fn fail_write(spec: &CommandSpec, code: RawValue<'_>) -> Result<Document> {
    let code = as_double(code).unwrap_or_default() as i32;
    let message = "Failing write due to failpoint. The write must not be reflected.";
    match spec.name {
        "insert" | "update" | "delete" => {
            let mut reply = doc! {"n": 0};
            if spec.name == "update" {
                reply.push("nModified", 0);
            }
            reply.push("writeErrors", vec![doc! {"index": 0, "code": code, "errmsg": message}]);
            Ok(reply)
        }
        _ => Err(Error::user(ErrorCode(code), message)),
    }
}

/// Acts out a configured `failCommand`.
fn fail_if_asked(
    client: &Client,
    engine: &Engine,
    spec: &CommandSpec,
    generic: &Generic<'_>,
    body: RawDocument<'_>,
    outcome: &mut Outcome<'_>,
) -> Result<()> {
    if !engine.options.test_commands || spec.name == "configureFailPoint" {
        return Ok(());
    }
    let concerns = |point: &FailCommand| {
        point.commands.contains(spec.name)
            && (point.app_name.is_none() || point.app_name == client.app_name)
            && point.namespace.as_ref().is_none_or(|namespace| {
                let collection = body.iter().next().and_then(|(_, value)| value.as_str()).unwrap_or_default();
                *namespace == format!("{}.{collection}", generic.database)
            })
    };
    let Some(point) = engine.fail_points.fire_command(concerns) else { return Ok(()) };
    if point.block_ms > 0 {
        std::thread::sleep(std::time::Duration::from_millis(point.block_ms));
    }
    outcome.close_connection = point.close_connection;
    outcome.write_concern_error = point.write_concern_error;
    outcome.forced_labels = point.error_labels;
    match point.error_code {
        Some(code) => {
            outcome.write_concern_error = None;
            Err(Error::user(ErrorCode(code), "Failing command via 'failCommand' failpoint"))
        }
        None if point.close_connection => {
            Err(Error::user(ErrorCode::InternalError, "Failing command via 'failCommand' failpoint"))
        }
        None => Ok(()),
    }
}
