%% Runs for ever in functions whose names and files are made to do harm, as are those modules' that the compiler lets be.
-module(hostile).
-export([main/0, spin/1]).

spin(0) -> 0;
spin(N) -> spin(N - 1).

main() ->
    Names = ["\e[31m;two\nlines 17\r\^G\d", [16#202e, 16#9b, $1, $m], "<script>x</script>]]>&\"'`$(x)", lists:duplicate(255, $x), "a.erl:1;b b.erl:2 3"],
    Call = lists:foldl(fun make/2, fun() -> forever() end, Names),
    io:put_chars("ready\n"),
    Call().

forever() -> spin(10000), forever().

make(Name, Inner) ->
    A = list_to_atom(Name),
    M = case [C || C <- Name, C < 32 orelse C > 255] of [] -> A; _ -> list_to_atom("hostile" ++ integer_to_list(length(Name))) end,
    Forms = [{attribute, 1, file, {Name, 1}}, {attribute, 1, module, M}, {attribute, 1, export, [{A, 1}]},
             {function, 1, A, 1, [{clause, 1, [{var, 1, 'G'}], [], [{call, 2, {var, 2, 'G'}, []}, {atom, 3, ok}]}]}],
    {ok, M, Code} = compile:forms(Forms, []),
    {module, M} = code:load_binary(M, Name, Code),
    fun() -> M:A(Inner), 1 end.
