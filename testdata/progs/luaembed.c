// Runs a Lua script with its arguments in a thread of its own: ./embed script argument...
#include <lua.h>
#include <lauxlib.h>
#include <lualib.h>
#include <pthread.h>

static int argc;
static char **argv;

static int call(lua_State *L) {
	lua_call(L, lua_gettop(L) - 1, 0);
	return 0;
}

static void *run(void *unused) {
	lua_State *L = luaL_newstate();
	luaL_openlibs(L);
	lua_register(L, "call", call);
	if (luaL_loadfile(L, argv[1]))
		return L;
	for (int i = 2; i < argc; i++)
		lua_pushstring(L, argv[i]);
	return lua_pcall(L, argc - 2, 0, 0) ? L : NULL;
}

int main(int n, char **list) {
	pthread_t thread;
	void *failed;
	argc = n, argv = list;
	pthread_create(&thread, NULL, run, NULL);
	pthread_join(thread, &failed);
	return failed != NULL;
}
