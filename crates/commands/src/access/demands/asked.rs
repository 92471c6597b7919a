//! The functions that the table of commands names: what arguments ask for.

use kilim_auth::{Action, Privilege, Resource, RoleName};
use kilim_bson::{Document, RawDocument, RawValue};
use kilim_engine::Namespace;
use kilim_engine::patterns::PatternState;
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::Declaration;

use super::Demands;
use crate::registry::{COMMANDS, place};

const FIND: Action = Action::named("find");
const INSERT: Action = Action::named("insert");
const UPDATE: Action = Action::named("update");
const REMOVE: Action = Action::named("remove");
const BYPASS: Action = Action::named("bypassDocumentValidation");
const DROP: Action = Action::named("dropCollection");
const GRANT: Action = Action::named("grantRole");
const REVOKE: Action = Action::named("revokeRole");
const RESTRICT: Action = Action::named("setAuthenticationRestriction");

pub(crate) fn aggregate(demands: &mut Demands<'_>) -> Result<()> {
    let stages = demands.argument("pipeline").and_then(RawValue::as_array);
    demands.need_pipeline(demands.database, demands.collection(), stages);
    Ok(())
}

pub(crate) fn insert(demands: &mut Demands<'_>) -> Result<()> {
    demands.need_on_own(INSERT);
    bypass(demands)
}

pub(crate) fn update(demands: &mut Demands<'_>) -> Result<()> {
    demands.need_on_own(UPDATE);
    let upserts = |statement: RawDocument<'_>| {
        statement.iter().any(|(name, value)| name == "upsert" && !matches!(value, RawValue::Bool(false)))
    };
    let in_body = demands.argument("updates").and_then(RawValue::as_array);
    let beside = demands.request.sequences.iter().filter(|(name, _)| *name == "updates");
    let in_body = in_body.into_iter().flat_map(|list| list.iter()).filter_map(RawValue::as_document);
    if beside.flat_map(|(_, list)| list.iter().copied()).chain(in_body).any(upserts) {
        demands.need_on_own(INSERT);
    }
    bypass(demands)
}

pub(crate) fn find_and_modify(demands: &mut Demands<'_>) -> Result<()> {
    demands.need_on_own(FIND);
    let removes = demands.is_true("remove");
    demands.need_on_own(if removes { REMOVE } else { UPDATE });
    if demands.is_true("upsert") {
        demands.need_on_own(INSERT);
    }
    bypass(demands)
}

fn bypass(demands: &mut Demands<'_>) -> Result<()> {
    if demands.is_true("bypassDocumentValidation") {
        demands.need_on_own(BYPASS);
    }
    Ok(())
}

/// What the command that is to be explained needs.
pub(crate) fn explain(demands: &mut Demands<'_>) -> Result<()> {
    let Some((_, RawValue::Document(inner))) = demands.body.iter().next() else { return Ok(()) };
    let spec = inner.iter().next().and_then(|(name, _)| place(name)).map(|place| &COMMANDS[place]);
    let Some(spec) = spec.filter(|spec| spec.name != "explain") else { return Ok(()) };
    demands.body = inner;
    demands.ask(spec)
}

pub(crate) fn create(demands: &mut Demands<'_>) -> Result<()> {
    const CREATE: Action = Action::named("createCollection");
    let (db, name) = (demands.database, demands.collection().unwrap_or_default());
    if demands.argument("viewOn").is_some() {
        demands.need(db, name, CREATE);
        return view(demands);
    }
    if demands.is_true("capped") {
        demands.need(db, name, Action::named("convertToCapped"));
    }
    if !demands.may(db, name, INSERT) {
        demands.need(db, name, CREATE);
    }
    Ok(())
}

pub(crate) fn coll_mod(demands: &mut Demands<'_>) -> Result<()> {
    demands.need_on_own(Action::named("collMod"));
    // The other half would be the view's own, and nobody would have asked about both together.
    if demands.argument("viewOn").is_some() != demands.argument("pipeline").is_some() {
        return Err(Error::user(
            ErrorCode::InvalidOptions,
            "Must specify both 'viewOn' and 'pipeline' when modifying a view and auth is enabled",
        ));
    }
    view(demands)
}

/// Nobody defines a view over what he may not read, if he could read it then through the view.
fn view(demands: &mut Demands<'_>) -> Result<()> {
    let reads = demands.may(demands.database, demands.collection().unwrap_or_default(), FIND);
    if let Some(RawValue::String(on)) = demands.argument("viewOn").filter(|_| reads) {
        let stages = demands.argument("pipeline").and_then(RawValue::as_array);
        demands.need_pipeline(demands.database, Some(on), stages);
    }
    Ok(())
}

/// It looks at one database that it names, or at all.
pub(crate) fn validate_db_metadata(demands: &mut Demands<'_>) -> Result<()> {
    // Only a privilege on all databases allows something on one that cannot exist.
    let db = demands.argument("db").and_then(RawValue::as_str).unwrap_or_default();
    demands.need_on_database(db, Action::named("validate"));
    Ok(())
}

/// A namespace as a whole text.
fn namespace(value: Option<RawValue<'_>>) -> (&str, &str) {
    value.and_then(RawValue::as_str).and_then(|text| text.split_once('.')).unwrap_or_default()
}

pub(crate) fn data_size(demands: &mut Demands<'_>) -> Result<()> {
    let (db, name) = namespace(demands.body.iter().next().map(|(_, value)| value));
    demands.need(db, name, FIND);
    Ok(())
}

pub(crate) fn filemd5(demands: &mut Demands<'_>) -> Result<()> {
    let root = demands.argument("root").and_then(RawValue::as_str).filter(|root| !root.is_empty());
    let chunks = format!("{}.chunks", root.unwrap_or("fs"));
    demands.need(demands.database, &chunks, FIND);
    Ok(())
}

pub(crate) fn rename_collection(demands: &mut Demands<'_>) -> Result<()> {
    let (from_db, from) = namespace(demands.body.iter().next().map(|(_, value)| value));
    let (to_db, to) = namespace(demands.argument("to"));
    // It may be the id of the collection that goes.
    let drops = demands.argument("dropTarget").is_some_and(|value| !matches!(value, RawValue::Bool(false)));
    let is_system = from.starts_with("system.") || to.starts_with("system.");
    if from_db == to_db && !is_system {
        // Within a database one action is enough, unless the user could read then what he cannot now.
        let renames = demands.may(from_db, from, Action::named("renameCollectionSameDB"));
        let may_drop = !drops || demands.may(to_db, to, DROP);
        let reveals = !demands.may(from_db, from, FIND) && demands.may(to_db, to, FIND);
        if renames && may_drop && !reveals {
            return Ok(());
        }
    }
    demands.need(from_db, from, FIND);
    demands.need(from_db, from, DROP);
    demands.need(to_db, to, INSERT);
    demands.need(to_db, to, Action::named("createIndex"));
    if drops {
        demands.need(to_db, to, DROP);
    }
    Ok(())
}

pub(crate) fn clone_collection_as_capped(demands: &mut Demands<'_>) -> Result<()> {
    let to = demands.argument("toCollection").and_then(RawValue::as_str).unwrap_or_default();
    demands.need_on_own(FIND);
    for action in ["insert", "createIndex", "convertToCapped"] {
        demands.need(demands.database, to, Action::named(action));
    }
    Ok(())
}

pub(crate) fn list_collections(demands: &mut Demands<'_>) -> Result<()> {
    let (name_only, own) = (demands.is_true("nameOnly"), demands.is_true("authorizedCollections"));
    let reaches = demands.rights.is_none_or(|rights| rights.reaches_database(demands.database));
    if !(name_only && own && reaches) {
        demands.need_on_database(demands.database, Action::named("listCollections"));
    }
    Ok(())
}

/// Everybody sees the databases in which he may do something; the command leaves out the others.
pub(crate) fn list_databases(_: &mut Demands<'_>) -> Result<()> {
    Ok(())
}

pub(crate) fn current_op(demands: &mut Demands<'_>) -> Result<()> {
    if !demands.is_true("$ownOps") || demands.identity.is_none() {
        demands.need_on_cluster(Action::named("inprog"));
    }
    Ok(())
}

/// To look at the level takes no more than to read the profile.
pub(crate) fn profile(demands: &mut Demands<'_>) -> Result<()> {
    let level = demands.body.iter().next().map(|(_, level)| level);
    let only_looks = matches!(level, Some(RawValue::Int32(-1)))
        && ["slowms", "sampleRate", "filter"].iter().all(|name| demands.body.get(name).is_none());
    if !(only_looks && demands.may(demands.database, Namespace::PROFILE, FIND)) {
        demands.need_on_database(demands.database, Action::named("enableProfiler"));
    }
    Ok(())
}

/// Whoever declares a pattern has the database read the source and write the target for him, so he must be allowed both.
pub(crate) fn create_pattern(demands: &mut Demands<'_>) -> Result<()> {
    let Some(target) = demands.collection() else { return Ok(()) };
    demands.need(demands.database, target, Action::named("pattern"));
    let fields = crate::argument::arguments("createPattern", demands.body);
    let fields = fields.filter(|argument| argument.name != "dryRun");
    let fields: Document = fields.map(|argument| (argument.name, argument.value.to_value())).collect();
    // One that cannot be parsed is refused by the command.
    if let Ok(declaration) = Declaration::parse(target, fields.as_raw()) {
        declared(demands, &declaration);
    }
    Ok(())
}

/// A pattern that is in force: what it shows comes from its source too. One that is not is put in force if it proves true,
/// which takes what it takes to declare it.
pub(crate) fn verify_pattern(demands: &mut Demands<'_>) -> Result<()> {
    if named(demands).is_some_and(|pattern| pattern.state == PatternState::Unverified) {
        return change_pattern(demands);
    }
    demands.need_on_own(FIND);
    source_of_named(demands);
    Ok(())
}

/// To change or repair a pattern takes what it took to declare it.
pub(crate) fn change_pattern(demands: &mut Demands<'_>) -> Result<()> {
    demands.need_on_own(Action::named("pattern"));
    if let Some(pattern) = named(demands) {
        declared(demands, &pattern.declaration);
    }
    Ok(())
}

/// What is declared afterwards is asked for as well.
pub(crate) fn modify_pattern(demands: &mut Demands<'_>) -> Result<()> {
    change_pattern(demands)?;
    let Some(pattern) = named(demands) else { return Ok(()) };
    let changes = crate::argument::arguments("modifyPattern", demands.body);
    let changes = changes.filter(|argument| argument.name != "name");
    let changes: Document = changes.map(|argument| (argument.name, argument.value.to_value())).collect();
    // Changes that cannot be made are refused by the command.
    if let Ok(declaration) = pattern.declaration.modified(changes.as_raw()) {
        declared(demands, &declaration);
    }
    Ok(())
}

/// Each entry needs what the write needs that it stands for.
pub(crate) fn apply_ops(demands: &mut Demands<'_>) -> Result<()> {
    demands.need_on_cluster(Action::named("applyOps"));
    let entries = demands.argument("applyOps").and_then(RawValue::as_array);
    if entries.is_some_and(|entries| entries.is_empty()) {
        // As on MongoDB, where a list that says nothing is nobody's business.
        demands.need_on_cluster(Action::named("internal"));
    }
    for entry in entries.into_iter().flat_map(|entries| entries.iter()).filter_map(RawValue::as_document) {
        let (db, collection) = namespace(demands.field(entry, "ns"));
        let actions: &[Action] = match demands.field(entry, "op").and_then(RawValue::as_str) {
            Some("n") => {
                demands.need_on_cluster(Action::named("appendOplogNote"));
                continue;
            }
            Some("d") => &[REMOVE],
            // Both write the document whether it is there or not.
            _ => &[INSERT, UPDATE],
        };
        actions.iter().for_each(|action| demands.need(db, collection, *action));
    }
    let conditions = demands.argument("preCondition").and_then(RawValue::as_array);
    let conditions = conditions.into_iter().flat_map(|conditions| conditions.iter());
    for condition in conditions.filter_map(RawValue::as_document) {
        let (db, collection) = namespace(demands.field(condition, "ns"));
        demands.need(db, collection, FIND);
    }
    Ok(())
}

fn source_of_named(demands: &mut Demands<'_>) {
    if let Some(pattern) = named(demands)
        && let Some(source) = pattern.declaration.kind.source()
    {
        demands.need(demands.database, source, FIND);
    }
}

fn named(demands: &mut Demands<'_>) -> Option<std::sync::Arc<kilim_engine::patterns::Pattern>> {
    let namespace = Namespace::parse(demands.database, demands.collection()?).ok()?;
    let name = demands.argument("name").and_then(RawValue::as_str)?;
    demands.engine.pattern(&namespace, name).ok()
}

/// What the upkeep of a pattern will do.
fn declared(demands: &mut Demands<'_>, declaration: &Declaration) {
    let (db, target, kind) = (demands.database, &*declaration.target, &declaration.kind);
    demands.need(db, target, FIND);
    demands.need(db, target, UPDATE);
    if let Some(source) = kind.source() {
        demands.need(db, source, FIND);
    }
    // A cascade, or documents that come and go with those of the source.
    if kind.comes_and_goes() || kind.notices_deletion() {
        demands.need(db, target, REMOVE);
    }
    if kind.comes_and_goes() || kind.makes_documents() {
        demands.need(db, target, INSERT);
    }
}

pub(crate) fn create_user(demands: &mut Demands<'_>) -> Result<()> {
    demands.need_on_database(demands.database, Action::named("createUser"));
    roles(demands, GRANT)?;
    restrictions(demands);
    Ok(())
}

pub(crate) fn update_user(demands: &mut Demands<'_>) -> Result<()> {
    let own = demands.identity.is_some_and(|identity| {
        Some(&*identity.name.user) == demands.collection() && identity.name.db == demands.database
    });
    for (field, action, own_action) in [
        ("pwd", "changePassword", "changeOwnPassword"),
        ("customData", "changeCustomData", "changeOwnCustomData"),
    ] {
        let allowed = |action: &str| {
            let action = Action::named(action);
            demands.rights.is_none_or(|rights| rights.allows_on_database(demands.database, action))
        };
        if demands.body.get(field).is_some() && !(own && allowed(own_action)) {
            demands.need_on_database(demands.database, Action::named(action));
        }
    }
    if demands.body.get("roles").is_some() {
        // Which roles it takes away is not known here.
        revoke_anywhere(demands);
        roles(demands, GRANT)?;
    }
    restrictions(demands);
    Ok(())
}

fn revoke_anywhere(demands: &mut Demands<'_>) {
    // Only a privilege on all databases allows something on one that cannot exist.
    demands.need_on_database("", REVOKE);
}

fn restrictions(demands: &mut Demands<'_>) {
    if demands.body.get("authenticationRestrictions").is_some() {
        demands.need_on_database(demands.database, RESTRICT);
    }
}

pub(crate) fn grant_roles(demands: &mut Demands<'_>) -> Result<()> {
    roles(demands, GRANT)
}

pub(crate) fn revoke_roles(demands: &mut Demands<'_>) -> Result<()> {
    roles(demands, REVOKE)
}

/// The right to grant or revoke in the database of each role.
fn roles(demands: &mut Demands<'_>, action: Action) -> Result<()> {
    let list = demands.argument("roles").and_then(RawValue::as_array);
    let list = list.into_iter().flat_map(|list| list.iter());
    for role in list.filter_map(|role| RoleName::parse(role, demands.database).ok()) {
        demands.need_on_database(&role.db, action);
    }
    Ok(())
}

pub(crate) fn create_role(demands: &mut Demands<'_>) -> Result<()> {
    demands.need_on_database(demands.database, Action::named("createRole"));
    roles(demands, GRANT)?;
    privileges(demands, GRANT)?;
    restrictions(demands);
    Ok(())
}

pub(crate) fn update_role(demands: &mut Demands<'_>) -> Result<()> {
    revoke_anywhere(demands);
    roles(demands, GRANT)?;
    privileges(demands, GRANT)?;
    restrictions(demands);
    Ok(())
}

pub(crate) fn grant_privileges(demands: &mut Demands<'_>) -> Result<()> {
    privileges(demands, GRANT)
}

pub(crate) fn revoke_privileges(demands: &mut Demands<'_>) -> Result<()> {
    privileges(demands, REVOKE)
}

/// The right to grant or revoke in the database that each privilege is about; `admin` stands for what is about none.
fn privileges(demands: &mut Demands<'_>, action: Action) -> Result<()> {
    let list = demands.argument("privileges").and_then(RawValue::as_array);
    let list = list.into_iter().flat_map(|list| list.iter()).filter_map(RawValue::as_document);
    for privilege in list.filter_map(|privilege| Privilege::parse(privilege).ok()) {
        let db = match &privilege.resource {
            Resource::Database(_) | Resource::Exact(..) => privilege.resource.database().unwrap_or("admin"),
            _ => "admin",
        };
        demands.need_on_database(db, action);
    }
    Ok(())
}

/// To read what the restore brings, and to make whatever users and roles are in it.
pub(crate) fn merge_authz_collections(demands: &mut Demands<'_>) -> Result<()> {
    const MAKE: [&str; 4] = ["createUser", "createRole", "grantRole", "revokeRole"];
    const DROP: [&str; 2] = ["dropUser", "dropRole"];
    let drops: &[&str] = if demands.is_true("drop") { &DROP } else { &[] };
    for action in MAKE.iter().chain(drops) {
        // Only a privilege on all databases allows something on one that cannot exist.
        demands.need_on_database("", Action::named(action));
    }
    for field in ["tempUsersCollection", "tempRolesCollection"] {
        if let Some(from) = demands.argument(field).and_then(RawValue::as_str).filter(|from| !from.is_empty())
        {
            let (db, collection) = from.split_once('.').unwrap_or((from, ""));
            demands.need(db, collection, FIND);
        }
    }
    Ok(())
}

pub(crate) fn users_info(demands: &mut Demands<'_>) -> Result<()> {
    const VIEW: Action = Action::named("viewUser");
    let asked = demands.body.iter().next().map(|(_, asked)| asked);
    match asked {
        Some(RawValue::Document(all)) if matches!(all.get("forAllDBs"), Some(RawValue::Bool(true))) => {
            demands.need_on_cluster(VIEW);
        }
        Some(RawValue::Array(names)) => names.iter().for_each(|name| view_user(demands, name)),
        Some(name @ (RawValue::String(_) | RawValue::Document(_))) => view_user(demands, name),
        _ => demands.need_on_database(demands.database, VIEW),
    }
    Ok(())
}

/// Everybody may look at himself.
fn view_user(demands: &mut Demands<'_>, name: RawValue<'_>) {
    let Ok(name) = kilim_auth::UserName::parse(name, demands.database) else { return };
    if demands.identity.is_none_or(|identity| identity.name != name) {
        demands.need_on_database(&name.db, Action::named("viewUser"));
    }
}

pub(crate) fn roles_info(demands: &mut Demands<'_>) -> Result<()> {
    const VIEW: Action = Action::named("viewRole");
    match demands.body.iter().next().map(|(_, asked)| asked) {
        Some(RawValue::Array(names)) => names.iter().for_each(|name| view_role(demands, name)),
        Some(name @ (RawValue::String(_) | RawValue::Document(_))) => view_role(demands, name),
        _ => demands.need_on_database(demands.database, VIEW),
    }
    Ok(())
}

/// Everybody may look at the roles that he has.
fn view_role(demands: &mut Demands<'_>, name: RawValue<'_>) {
    let Ok(name) = RoleName::parse(name, demands.database) else { return };
    if demands.identity.is_none_or(|identity| !identity.gathered.roles.contains(&name)) {
        demands.need_on_database(&name.db, Action::named("viewRole"));
    }
}
