"""Records matrix.txt: which built-in roles may run which command.

record.py PORT MATRIX, against a mongod on loopback with --auth, --replSet and --keyFile, which has a user root of admin with the
password pw.
"""
import sys, json
from bson import json_util
from bson.int64 import Int64
from pymongo import MongoClient
from pymongo.errors import OperationFailure
HEAD='''# Which built-in roles may run which command: recorded from mongod 6.0.5 --auth by record.py.
# Each line: database, command, and who was not refused with 13 (Unauthorized), with tabs between.
# `role@db` is a user of `admin` who has this role of `db`; a role without one is of `admin`; `none` has not logged in.
'''
port=int(sys.argv[1])
root=MongoClient('127.0.0.1',port,directConnection=True,username='root',password='pw')
def setup():
    for d in ('shop','other'): root.drop_database(d)
    root.shop.a.insert_many([{'_id':i} for i in range(3)]); root.shop.b.insert_one({'_id':1}); root.other.c.insert_one({'_id':1})
    root.shop.command({'create':'v','viewOn':'a','pipeline':[]})
    root.shop.command({'create':'ts','timeseries':{'timeField':'t'}})
ROLES=[('none','',''),]
for r in ('read','readWrite','dbAdmin','dbOwner','userAdmin'): ROLES+= [(r,'shop',r+'@shop'),(r,'other',r+'@other'),(r,'admin',r+'@admin')]
for r in ('readAnyDatabase','readWriteAnyDatabase','dbAdminAnyDatabase','userAdminAnyDatabase','clusterMonitor','clusterManager','clusterAdmin','hostManager','backup','restore','root','__system'): ROLES.append((r,'admin',r))
S='shop'
# Stages that read nothing but what comes to them.
STAGES=[{'$addFields':{'x':1}},{'$bucket':{'groupBy':'$_id','boundaries':[0,1000]}},{'$bucketAuto':{'groupBy':'$_id','buckets':2}},{'$count':'n'},{'$densify':{'field':'x','range':{'step':1,'bounds':'full'}}},{'$fill':{'output':{'x':{'value':1}}}},{'$geoNear':{'near':[0,0],'distanceField':'d','key':'g'}},{'$group':{'_id':1}},{'$limit':1},{'$match':{}},{'$project':{'x':1}},{'$redact':'$$KEEP'},{'$replaceRoot':{'newRoot':{}}},{'$replaceWith':{}},{'$sample':{'size':1}},{'$set':{'x':1}},{'$setWindowFields':{'output':{'x':{'$sum':1}}}},{'$skip':1},{'$sort':{'x':1}},{'$sortByCount':'$x'},{'$unset':'x'},{'$unwind':'$x'}]
C=[
 (S,{'find':'a'}),(S,{'find':'v'}),(S,{'find':'system.js'}),(S,{'find':'system.profile'}),('admin',{'find':'system.users'}),('admin',{'find':'system.roles'}),('local',{'find':'x'}),('config',{'find':'x'}),
 (S,{'count':'a'}),(S,{'distinct':'a','key':'_id'}),
 (S,{'aggregate':'a','pipeline':[],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$lookup':{'from':'b','localField':'_id','foreignField':'_id','as':'x'}}],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$unionWith':'b'}],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$facet':{'x':[{'$lookup':{'from':'system.profile','pipeline':[],'as':'y'}}]}}],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$graphLookup':{'from':'b','startWith':'$_id','connectFromField':'_id','connectToField':'_id','as':'x'}}],'cursor':{}}),
 (S,{'aggregate':'a','pipeline':[{'$out':'out'}],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$out':{'db':'other','coll':'out'}}],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$merge':'out'}],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$merge':{'into':'out2','whenMatched':'fail'}}],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$merge':{'into':'out','whenNotMatched':'discard'}}],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$merge':{'into':{'db':'other','coll':'m'}}}],'cursor':{}}),
 (S,{'aggregate':'a','pipeline':[{'$merge':'out'}],'cursor':{},'bypassDocumentValidation':True}),
 (S,{'aggregate':'a','pipeline':[{'$collStats':{'count':{}}}],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$indexStats':{}}],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$planCacheStats':{}}],'cursor':{}}),
 ('admin',{'aggregate':1,'pipeline':[{'$currentOp':{}}],'cursor':{}}),('admin',{'aggregate':1,'pipeline':[{'$currentOp':{'allUsers':True}}],'cursor':{}}),('admin',{'aggregate':1,'pipeline':[{'$listLocalSessions':{}}],'cursor':{}}),('admin',{'aggregate':1,'pipeline':[{'$listLocalSessions':{'allUsers':True}}],'cursor':{}}),
 (S,{'insert':'a','documents':[{}]}),(S,{'insert':'a','documents':[{}],'bypassDocumentValidation':True}),(S,{'insert':'system.js','documents':[{'_id':'x','value':1}]}),
 (S,{'update':'a','updates':[{'q':{'_id':1},'u':{'$set':{'x':1}}}]}),(S,{'update':'a','updates':[{'q':{'_id':99},'u':{'$set':{'x':1}},'upsert':True}]}),(S,{'delete':'a','deletes':[{'q':{'_id':77},'limit':1}]}),
 (S,{'findAndModify':'a','query':{'_id':1},'update':{'$set':{'y':1}}}),(S,{'findAndModify':'a','query':{'_id':98},'update':{'$set':{'y':1}},'upsert':True}),(S,{'findAndModify':'a','query':{'_id':97},'remove':True}),
 (S,{'create':'n1'}),(S,{'create':'n2','capped':True,'size':4096}),(S,{'create':'n3','viewOn':'a','pipeline':[]}),(S,{'create':'n4','viewOn':'a','pipeline':[{'$lookup':{'from':'b','localField':'_id','foreignField':'_id','as':'x'}}]}),
 (S,{'createIndexes':'a','indexes':[{'key':{'q':1},'name':'q'}]}),(S,{'listIndexes':'a'}),(S,{'dropIndexes':'a','index':'q'}),(S,{'collMod':'a','validationLevel':'strict'}),(S,{'collStats':'a'}),(S,{'dbStats':1}),(S,{'dataSize':'shop.a'}),(S,{'validate':'a'}),(S,{'dbHash':1}),(S,{'profile':-1}),(S,{'profile':0}),(S,{'compact':'a','force':True}),
 (S,{'convertToCapped':'b','size':4096}),(S,{'cloneCollectionAsCapped':'a','toCollection':'cc','size':4096}),
 (S,{'listCollections':1}),(S,{'listCollections':1,'nameOnly':True}),(S,{'listCollections':1,'nameOnly':True,'authorizedCollections':True}),('admin',{'listDatabases':1}),('admin',{'listDatabases':1,'authorizedDatabases':False}),('admin',{'listDatabases':1,'authorizedDatabases':True}),
 ('admin',{'renameCollection':'shop.a','to':'shop.a2'}),('admin',{'renameCollection':'shop.b','to':'shop.a','dropTarget':True}),('admin',{'renameCollection':'shop.a','to':'other.a2'}),
 (S,{'explain':{'find':'a'}}),(S,{'explain':{'update':'a','updates':[{'q':{},'u':{'$set':{'x':1}}}]}}),(S,{'explain':{'delete':'a','deletes':[{'q':{},'limit':0}]}}),(S,{'explain':{'aggregate':'a','pipeline':[],'cursor':{}}}),
 (S,{'planCacheClear':'a'}),(S,{'planCacheListFilters':'a'}),
 ('admin',{'serverStatus':1}),('admin',{'hostInfo':1}),('admin',{'getLog':'startupWarnings'}),('admin',{'getCmdLineOpts':1}),('admin',{'getParameter':1,'quiet':1}),('admin',{'setParameter':1,'quiet':False}),('admin',{'getClusterParameter':'changeStreamOptions'}),('admin',{'setClusterParameter':{'changeStreamOptions':{'preAndPostImages':{'expireAfterSeconds':'off'}}}}),('admin',{'top':1}),('admin',{'currentOp':1}),('admin',{'currentOp':1,'$ownOps':True}),('admin',{'killOp':1,'op':123456}),('admin',{'replSetGetStatus':1}),('admin',{'getDefaultRWConcern':1}),
 ('admin',{'killAllSessions':[]}),('admin',{'startSession':1}),('admin',{'endSessions':[]}),('admin',{'refreshSessions':[]}),
 ('admin',{'buildInfo':1}),('admin',{'ping':1}),('admin',{'hello':1}),('admin',{'connectionStatus':1}),('admin',{'listCommands':1}),('admin',{'whatsmyuri':1}),
 (S,{'usersInfo':1}),(S,{'usersInfo':{'forAllDBs':True}}),(S,{'rolesInfo':1}),('admin',{'usersInfo':1}),('admin',{'rolesInfo':1}),
 (S,{'createUser':'t','pwd':'p','roles':[]}),(S,{'grantRolesToUser':'t','roles':['read']}),(S,{'grantRolesToUser':'t','roles':[{'role':'read','db':'other'}]}),(S,{'revokeRolesFromUser':'t','roles':['read']}),(S,{'updateUser':'t','pwd':'q'}),(S,{'updateUser':'t','customData':{}}),(S,{'updateUser':'t','roles':['read']}),(S,{'updateUser':'t','authenticationRestrictions':[]}),(S,{'dropUser':'t'}),
 (S,{'createRole':'t','privileges':[],'roles':[]}),(S,{'createRole':'t2','privileges':[{'resource':{'db':'shop','collection':''},'actions':['find']}],'roles':['read']}),(S,{'grantPrivilegesToRole':'t','privileges':[{'resource':{'db':'shop','collection':''},'actions':['find']}]}),(S,{'revokePrivilegesFromRole':'t','privileges':[{'resource':{'db':'shop','collection':''},'actions':['find']}]}),(S,{'grantRolesToRole':'t','roles':['read']}),(S,{'revokeRolesFromRole':'t','roles':['read']}),(S,{'updateRole':'t','privileges':[]}),(S,{'dropRole':'t'}),
 ('admin',{'createUser':'t','pwd':'p','roles':['root']}),('admin',{'invalidateUserCache':1}),
 *([(S,{'aggregate':'a','pipeline':[stage],'cursor':{}}) for stage in STAGES]),
 (S,{'aggregate':1,'pipeline':[{'$documents':[{'x':1}]}],'cursor':{}}),(S,{'aggregate':1,'pipeline':[{'$documents':[{'x':1}]},{'$lookup':{'from':'a','pipeline':[{'$documents':[]}],'as':'y'}}],'cursor':{}}),(S,{'aggregate':1,'pipeline':[{'$documents':[{'x':1}]},{'$lookup':{'from':'b','pipeline':[],'as':'y'}}],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$lookup':{'pipeline':[{'$documents':[{'x':1}]}],'as':'y'}}],'cursor':{}}),
 (S,{'aggregate':'a','pipeline':[{'$unionWith':{'coll':'b','pipeline':[{'$lookup':{'from':'system.profile','pipeline':[],'as':'y'}}]}}],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$lookup':{'from':'b','pipeline':[{'$unionWith':'system.js'}],'as':'y'}}],'cursor':{}}),
 (S,{'aggregate':'a','pipeline':[{'$changeStream':{}}],'cursor':{}}),(S,{'aggregate':1,'pipeline':[{'$changeStream':{}}],'cursor':{}}),('admin',{'aggregate':1,'pipeline':[{'$changeStream':{'allChangesForCluster':True}}],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$changeStream':{'fullDocument':'updateLookup'}},{'$match':{}}],'cursor':{}}),
 ('config',{'aggregate':'system.sessions','pipeline':[{'$listSessions':{}}],'cursor':{}}),('config',{'aggregate':'system.sessions','pipeline':[{'$listSessions':{'allUsers':True}}],'cursor':{}}),('admin',{'aggregate':1,'pipeline':[{'$shardedDataDistribution':{}}],'cursor':{}}),
 (S,{'find':'ts'}),(S,{'find':'system.buckets.ts'}),(S,{'aggregate':'system.buckets.ts','pipeline':[],'cursor':{}}),(S,{'aggregate':'a','pipeline':[{'$unionWith':'system.buckets.ts'}],'cursor':{}}),(S,{'insert':'system.buckets.ts','documents':[{'_id':1}]}),(S,{'delete':'system.buckets.ts','deletes':[{'q':{'_id':1},'limit':1}]}),(S,{'find':'system.views'}),(S,{'drop':'system.views'}),(S,{'collStats':'system.buckets.ts'}),(S,{'listIndexes':'system.buckets.ts'}),
 (S,{'explain':{'aggregate':'a','pipeline':[{'$lookup':{'from':'system.profile','pipeline':[],'as':'y'}}],'cursor':{}}}),(S,{'explain':{'findAndModify':'a','query':{},'remove':True}}),(S,{'explain':{'count':'a'}}),(S,{'explain':{'distinct':'a','key':'x'}}),
 (S,{'getMore':Int64(123456789),'collection':'a'}),(S,{'killCursors':'a','cursors':[Int64(123456789)]}),
 ('admin',{'commitTransaction':1}),('admin',{'abortTransaction':1}),('admin',{'killSessions':[]}),('admin',{'killAllSessionsByPattern':[]}),
 ('admin',{'isMaster':1}),('admin',{'lockInfo':1}),('admin',{'logRotate':1}),('admin',{'replSetGetConfig':1}),('admin',{'connPoolStats':1}),('admin',{'dropConnections':1,'hostAndPort':[]}),('admin',{'fsync':1}),('admin',{'setDefaultRWConcern':1,'defaultWriteConcern':{'w':1}}),('admin',{'setFeatureCompatibilityVersion':'6.0'}),('admin',{'setUserWriteBlockMode':1,'global':False}),
 (S,{'planCacheClearFilters':'a'}),(S,{'planCacheSetFilter':'a','query':{'x':1},'indexes':[{'x':1}]}),(S,{'reIndex':'a'}),(S,{'setIndexCommitQuorum':'a','indexNames':['q'],'commitQuorum':1}),(S,{'validateDBMetadata':1,'apiParameters':{'version':'1'}}),(S,{'validateDBMetadata':1,'db':'shop','apiParameters':{'version':'1'}}),(S,{'filemd5':1,'root':'fs'}),
 ('admin',{'applyOps':[]}),('admin',{'applyOps':[{'op':'i','ns':'shop.a','o':{'_id':5000}}]}),('admin',{'applyOps':[{'op':'d','ns':'shop.a','o':{'_id':5000}}]}),('admin',{'applyOps':[{'op':'n','ns':'','o':{}}]}),
 ('admin',{'_mergeAuthzCollections':1,'tempUsersCollection':'admin.tempusers','tempRolesCollection':'admin.temproles','db':'nowhere','drop':False}),('admin',{'_mergeAuthzCollections':1,'tempUsersCollection':'shop.a','db':'nowhere','drop':False}),('admin',{'_mergeAuthzCollections':1,'tempRolesCollection':'admin.temproles','db':'nowhere','drop':True}),
 ('admin',{'saslStart':1,'mechanism':'UNHEARD','payload':''}),('admin',{'saslContinue':1,'conversationId':99,'payload':''}),('$external',{'authenticate':1,'mechanism':'MONGODB-X509'}),
 (S,{'drop':'zzz'}),(S,{'dropDatabase':1}),(S,{'dropAllUsersFromDatabase':1}),(S,{'dropAllRolesFromDatabase':1}),
 # Last, since nobody is logged in behind it.
 ('admin',{'logout':1}),
]
def written(command):
    longs = next(iter(command)) in ('getMore', 'killCursors')
    return json_util.dumps(command, json_options=json_util.CANONICAL_JSON_OPTIONS) if longs else json.dumps(command)
def main():
    out=[]
    setup()
    for name,db,label in ROLES:
        try: root.admin.command({'dropUser':'m_'+label})
        except OperationFailure: pass
        if name!='none': root.admin.command({'createUser':'m_'+label,'pwd':'pw','roles':[{'role':name,'db':db}],'mechanisms':['SCRAM-SHA-1']})
    clients={label:(MongoClient('127.0.0.1',port,directConnection=True,username='m_'+label,password='pw',authMechanism='SCRAM-SHA-1',maxPoolSize=1) if name!='none' else MongoClient('127.0.0.1',port,directConnection=True,maxPoolSize=1)) for name,db,label in ROLES}
    for db,cmd in C:
        allowed=[]
        first=next(iter(cmd))
        for name,rdb,label in ROLES:
            # restore what commands destroy
            if first in ('dropDatabase','renameCollection','drop','convertToCapped','create','aggregate','cloneCollectionAsCapped'):
                if first=='dropDatabase' or first=='renameCollection' or first=='convertToCapped': setup()
                elif first=='create': root[db].drop_collection(cmd['create'])
                elif first=='cloneCollectionAsCapped': root[db].drop_collection('cc')
                elif 'out2' in json.dumps(cmd): root.shop.out2.drop()
            if first in ('dropUser','dropAllUsersFromDatabase','grantRolesToUser','revokeRolesFromUser','updateUser'):
                try: root[db].command({'createUser':'t','pwd':'p','roles':['read'],'mechanisms':['SCRAM-SHA-1']})
                except OperationFailure: pass
            if first=='createUser':
                try: root[db].command({'dropUser':'t'})
                except OperationFailure: pass
            if 'Role' in first and first not in ('createRole','grantRolesToUser','revokeRolesFromUser'):
                try: root[db].command({'createRole':'t','privileges':[],'roles':[]})
                except OperationFailure: pass
            if first=='createRole':
                try: root[db].command({'dropRole':cmd['createRole']})
                except OperationFailure: pass
            try:
                clients[label][db].command(cmd); ok=True
            except OperationFailure as e:
                ok = e.code!=13
            if ok: allowed.append(label or 'none')
        out.append({'db':db,'command':cmd,'allowed':allowed})
    for name,db,label in ROLES:
        if name!='none': root.admin.command({'dropUser':'m_'+label})
    with open(sys.argv[2], 'w') as file:
        file.write(HEAD)
        file.write('users\t' + ' '.join(label or 'none' for _, _, label in ROLES) + '\n')
        for one in out:
            file.write('%s\t%s\t%s\n' % (one['db'], written(one['command']), ' '.join(one['allowed'])))
main()
