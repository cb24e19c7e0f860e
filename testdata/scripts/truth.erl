%% Tells its own stacks, of functions of all kinds: erl -noshell -pa DIR -s truth run MODE.
%% What tells a stack then runs until it is told to go on. Without its own calls a process has in its stack what its caller is to return to.
-module(truth).
-compile([nowarn_unused_function, nowarn_unused_vars]).
-export([run/1, tell/1, applied/1, applied/2, busy/0, init/1, handle_call/3, handle_cast/2, handle_info/2, id/1, compute/2, churned/2, spun/0]).

run([tell]) ->
    erlang:system_flag(backtrace_depth, 1000),
    Flag = atomics:new(1, []),
    persistent_term:put(flag, Flag),
    spawn_link(fun() -> kinds(), halt(0) end),
    reader(Flag);
run([random]) ->
    spawn_link(fun() -> busy() end),
    busy();
run([churn]) ->
    spawn_link(fun() -> [made(K) || K <- lists:seq(0, 39)], io:put_chars("{}\n"), churn(0) end),
    wait();
run([idle]) ->
    io:put_chars("{}\n"),
    wait();
run([loads]) ->
    loads(list_to_integer(os:getenv("LOADS", "30000"))),
    io:put_chars("loaded\n"),
    busy().

wait() -> receive never -> ok end.

reader(Flag) ->
    case io:get_line("") of
        eof -> halt(0);
        _ -> atomics:put(Flag, 1, 1), reader(Flag)
    end.

id(X) -> X.

%% Its stack, innermost first, and then the processor.
tell(_) ->
    {current_stacktrace, Stack} = process_info(self(), current_stacktrace),
    put(told, told() + 1),
    io:put_chars(json(Stack)),
    spun(),
    told.

told() -> case get(told) of undefined -> 0; N -> N end.

spun() ->
    Flag = persistent_term:get(flag),
    case told() rem 3 of
        0 -> turned(Flag);
        1 -> reversed(Flag, lists:seq(1, 2000));
        2 -> sorted(Flag, lists:seq(1, 300))
    end,
    atomics:put(Flag, 1, 0).

%% Code alone, a native function that is called, and native code that collects.
turned(Flag) -> case atomics:get(Flag, 1) of 0 -> turned(Flag, 1000); 1 -> ok end.
turned(Flag, 0) -> turned(Flag);
turned(Flag, N) -> turned(Flag, N - 1).
reversed(Flag, List) -> case atomics:get(Flag, 1) of 0 -> reversed(Flag, lists:reverse(List)); 1 -> ok end.
sorted(Flag, List) -> case atomics:get(Flag, 1) of 0 -> sorted(Flag, lists:usort(fun(A, B) -> A >= B end, List) ++ []); 1 -> ok end.

json(Stack) ->
    Frames = [io_lib:format("[\"\",\"~s:~s/~w\",\"~s\",~w]", [M, io_lib:write(F), arity(A), proplists:get_value(file, L, ""), proplists:get_value(line, L, 0)])
              || {M, F, A, L} <- Stack],
    ["{\"TID\":0,\"Stack\":[", lists:join(",", Frames), "]}\n"].
arity(A) when is_integer(A) -> A;
arity(A) -> length(A).

kinds() ->
    Each = [fun plain/0, fun funs/0, fun comprehensions/0, fun caught/0, fun tried/0, fun after_error/0, fun folded/0, fun mapped/0, fun maps_folded/0,
            fun sorted_by/0, fun deep/0, fun applies/0, fun binaries/0, fun received/0, fun selected/0, fun handled/0, fun handlers/0, fun tables/0,
            fun large/0, fun maps_made/0, fun floats/0, fun guards/0, fun records/0, fun evals/0, fun servers/0, fun monitors/0, fun bigs/0, fun dicts/0,
            fun others/0],
    lists:foreach(fun(F) -> F(), ok end, Each),
    lists:foreach(fun(F) -> F(), ok end, Each),
    lists:foreach(fun(F) -> F(), ok end, Each),
    ok.

plain() -> X = id(1), tell(X), X + 1.

funs() ->
    Y = id(3),
    F = fun(X) -> {tell(X), Y} end,
    R = F(1),
    G = fun Named(0) -> tell(0), [0]; Named(N) -> [N | Named(N - 1)] end,
    S = G(3),
    H = fun ?MODULE:tell/1,
    {R, S, H(2), (fun lists:map/2)(fun(X) -> {tell(X)} end, [1])}.

comprehensions() ->
    A = [{X, tell(X)} || X <- [1, 2], X > 0],
    B = << <<(byte(tell(X))):8>> || X <- [1] >>,
    C = [{X, Y, tell(Y)} || X <- [1], <<Y:8>> <= <<7>>],
    {A, B, C}.
byte(_) -> 1.

caught() ->
    X = (catch {tell(1), throw(id(x))}),
    {catch tell(2), X}.

tried() ->
    try {tell(1), erlang:error(id(bad))}
    catch
        error:bad:Stack -> {tell(2), length(Stack)}
    after
        {tell(3)}
    end,
    try id(4) of
        N -> {tell(N), N}
    catch
        _:_ -> none
    after
        tell(5)
    end,
    ok.

after_error() ->
    A = try hd(id([])) catch error:badarg -> tell(1), a end,
    B = try id(a) + 1 catch error:badarith -> tell(2), b end,
    C = try element(id(3), {1}) catch error:badarg -> tell(3), c end,
    D = try (id(7))() catch error:{badfun, _} -> tell(4), d end,
    E = try clause(id(2)) catch error:function_clause -> tell(5), e end,
    F = try case id(3) of 1 -> 1 end catch error:{case_clause, _} -> tell(6), f end,
    G = try binary_to_atom(id(1)) catch error:badarg -> tell(7), g end,
    H = try maps:get(k, id(#{})) catch error:{badkey, _} -> tell(8), h end,
    {A, B, C, D, E, F, G, H}.
clause(1) -> one.

folded() -> {lists:foldl(fun(X, A) -> tell(X), X + A end, 0, [1, 2]), lists:foldr(fun(X, A) -> tell(X), X + A end, 0, [1, 2])}.
mapped() -> {[tell(X) || X <- lists:filtermap(fun(X) -> tell(X), {true, X} end, [1])], lists:mapfoldl(fun(X, A) -> {tell(X), A} end, 0, [1])}.
maps_folded() ->
    M = maps:from_list([{X, X} || X <- lists:seq(1, 40)]),
    {maps:fold(fun(K, _, A) when K < 3 -> tell(K), A + 1; (_, _, A) -> A end, 0, M), maps:map(fun(1, V) -> tell(V); (_, V) -> V end, M)}.
sorted_by() -> {lists:sort(fun(A, B) -> A > 1 orelse tell(A), A =< B end, [2, 1, 3]), lists:usort(fun(A, B) -> tell(A), A =< B end, [1, 2])}.

deep() -> {depth(400), mutual(10), turn(5)}.
depth(0) -> tell(0), 0;
depth(N) -> 1 + depth(N - 1).
mutual(0) -> {tell(0)};
mutual(N) -> {mutual2(N - 1), N}.
mutual2(0) -> [tell(0)];
mutual2(N) -> [mutual(N - 1) | N].
turn(0) -> tell(0);
turn(N) -> turn(N - 1).

applies() ->
    M = id(?MODULE), F = id(applied),
    A = apply(M, F, id([1])),
    B = M:F(2, 3),
    C = erlang:apply(fun(X) -> {tell(X)} end, [4]),
    {A, B, C, M:F(5)}.
applied(X) -> {tell(X)}.
applied(X, Y) -> [tell(X), Y].

binaries() ->
    <<A:3, B:13, C/binary>> = id(<<1, 2, 3, 4>>),
    D = <<A:3, B:13, (size1(tell(C))):16>>,
    E = binary:replace(<<"abc">>, <<"b">>, <<(id($x))>>),
    {D, E, each(C), re:replace("abc", "b", "x"), unicode:characters_to_binary([text(tell(1)), E])}.
size1(_) -> 3.
text(_) -> "t".
each(<<X, Rest/binary>>) -> [{tell(X), X} | each(Rest)];
each(<<>>) -> [].

received() ->
    self() ! {other}, self() ! {mine, 1},
    A = receive {mine, N} -> tell(N), N end,
    B = receive nothing -> 1 after 0 -> tell(2) end,
    C = receive {other} -> {tell(3)} after 1000 -> none end,
    self() ! late,
    {A, B, C, loop(2)}.
loop(0) -> receive late -> tell(0) end;
loop(N) -> R = loop(N - 1), {R}.

selected() -> [select(X) || X <- [0, 1, 2, 3, 4, 5, 6, 7, a, b, c, d, e, f, g]].
select(0) -> tell(0), 0;
select(1) -> {tell(1)};
select(2) -> A = id(1), B = id(2), C = id(3), tell(2), {A, B, C};
select(3) -> [tell(3) | id(1)];
select(4) -> 4;
select(5) -> {id(5), tell(5)};
select(6) -> 6;
select(7) -> lists:append([tell(7)], id([1]));
select(a) -> tell(a), 1;
select(b) -> {tell(b), 2};
select(c) -> 3;
select(X) -> {X, case X of d -> A = id(9), tell(d), A; e -> {tell(e)}; _ -> none end}.

handled() ->
    F = fun(Key) ->
            try
                case id(Key) of 1 -> throw(one); 2 -> exit(two); 3 -> error(three); 4 -> {tell(Key), id(Key)} end
            catch
                throw:T -> {tell(1), T};
                exit:E -> {tell(2), E};
                error:E -> {tell(3), E}
            end
        end,
    [F(K) || K <- [1, 2, 3, 4]].

%% A catch in a frame that has others around it, and a stack that a collection has moved.
handlers() ->
    A = id(1), B = id(2),
    try
        L = lists:seq(1, 20000),
        try
            garbage(L), tell(1), error(inner)
        catch
            error:inner -> garbage(L), tell(2), throw({A, L})
        end
    catch
        throw:{X, Y} -> tell(3), {X, length(Y), B}
    end.
garbage(L) -> lists:sum([X + 1 || X <- lists:reverse(L)]), erlang:garbage_collect(), ok.

tables() ->
    T = ets:new(t, [ordered_set]),
    ets:insert(T, [{X, X} || X <- lists:seq(1, 10)]),
    A = ets:foldl(fun({1, _}, S) -> tell(1), S; (_, S) -> S + 1 end, 0, T),
    ets:delete(T),
    {A, tell(2)}.

large() ->
    [A, B, C, D, E, F, G, H | _] = L = lists:seq(1, 8),
    R = {id(A), id(B), id(C), id(D), id(E), id(F), id(G), id(H)},
    tell(1),
    S = many(A, B, C, D, E, F, G, H, L, R),
    {R, S}.
many(A, B, C, D, E, F, G, H, L, R) ->
    X1 = id(A), X2 = id(B), X3 = id(C), X4 = id(D), X5 = id(E), X6 = id(F), X7 = id(G), X8 = id(H),
    tell(1),
    Y = {X1, X2, X3},
    Z = id(Y),
    tell(2),
    {X4, X5, X6, X7, X8, L, R, Z}.

maps_made() -> M = #{a => tell(1), b => id(2)}, N = M#{a := tell(2), c => tell(3)}, #{b := X} = N, {X, maps:size(N)}.
floats() -> X = id(1.5), Y = X * 2.5 + number(tell(1)), {Y, math:sin(Y), round(Y) div id(1), tell(2)}.
number(_) -> 1.0.
guards() -> guard(id(5), id([1])).
guard(X, L) when X > 3, length(L) =:= 1, is_list(L) -> {tell(X), L};
guard(_, _) -> none.
-record(r, {a, b}).
records() -> R = #r{a = tell(1), b = id(2)}, S = R#r{b = tell(2)}, {S#r.a, element(2, S)}.

evals() ->
    {ok, Tokens, _} = erl_scan:string("truth:tell(1), lists:map(fun(X) -> {truth:tell(X)} end, [1])."),
    {ok, Exprs} = erl_parse:parse_exprs(Tokens),
    erl_eval:exprs(Exprs, []).

servers() ->
    {ok, P} = gen_server:start_link(?MODULE, [self()], []),
    A = gen_server:call(P, ask, infinity),
    gen_server:cast(P, {ask, self()}),
    receive done -> ok end,
    P ! {ask, self()},
    receive done -> ok end,
    {A, gen_server:stop(P)}.
init(_) -> tell(1), {ok, none}.
handle_call(ask, _, S) -> {reply, {tell(2)}, S}.
handle_cast({ask, P}, S) -> tell(3), P ! done, {noreply, S}.
handle_info({ask, P}, S) -> X = {tell(4)}, P ! done, {noreply, {S, X}}.

monitors() ->
    {P, R} = spawn_monitor(fun() -> deep_in(3) end),
    receive {'DOWN', R, process, P, normal} -> ok end,
    {Q, W} = spawn_monitor(?MODULE, applied, [1]),
    receive {'DOWN', W, process, Q, normal} -> tell(2) end.
deep_in(0) -> tell(1), ok;
deep_in(N) -> deep_in(N - 1), ok.

bigs() -> X = id(1 bsl 200), Y = X * X + 1, tell(1), {Y rem 7, Y div X, -Y, Y bxor X, Y > X, float(X)}.
dicts() -> D = orddict:update(a, fun(V) -> tell(V), V + 1 end, orddict:from_list([{a, 1}])), put(x, D), {get(x), lists:keymap(fun(V) -> {tell(V)} end, 1, [{1, 2}])}.
others() ->
    A = queue:fold(fun(X, S) -> tell(X), X + S end, 0, queue:from_list([1])),
    B = string:tokens("a b", " "),
    C = lists:any(fun(X) -> tell(X), true end, [1]),
    D = lists:keysort(1, [{2, a}, {1, b}]),
    {A, B, C, D, lists:zipwith(fun(X, Y) -> tell(X), Y end, [1], [2]), gb_trees:map(fun(K, _) -> tell(K) end, gb_trees:from_orddict([{1, 1}]))}.

%% A program at random.
busy() ->
    compute(25, 3),
    busy().
compute(N, Kind) ->
    A = fib(N rem 18),
    B = work(Kind rem 9, N),
    id([A, B]),
    case N of 0 -> 0; _ -> 1 + compute(N - 1, Kind + 1) end.
fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).
work(0, N) -> lists:foldl(fun(X, A) -> fib(X rem 10) + A end, 0, lists:seq(1, N));
work(1, N) -> lists:sum([small(X) || X <- lists:seq(1, N * 20)]);
work(2, N) -> (catch throws(N));
work(3, N) -> maps:fold(fun(K, V, A) -> small(K) + V + A end, 0, maps:from_list([{X, X} || X <- lists:seq(1, N * 4)]));
work(4, N) -> try errors(N) catch error:_ -> small(N) after small(N) end;
work(5, N) -> bits(binary:copy(<<1, 2, 3>>, N * 10));
work(6, N) -> lists:sort(fun(X, Y) -> small(X) >= small(Y) end, lists:seq(1, N * 3));
work(7, N) -> self() ! {n, N}, receive {n, M} -> small(M) end;
work(8, N) -> length(re:split(lists:duplicate(N * 10, $a), "a")) + small(N).
throws(0) -> throw(small(0));
throws(N) -> 1 + throws(N - 1).
errors(0) -> hd(id([]));
errors(N) -> 1 + errors(N - 1).
bits(<<X, Rest/binary>>) -> small(X) + bits(Rest);
bits(<<>>) -> small(0).
small(N) -> (N * 7 + 3) rem 11.

%% A module that is replaced all the time: its functions have as many registers, and lines, as its number says.
churn(N) ->
    {module, made} = load(N rem 40),
    [{ok, _} = {ok, made:outer(X, N)} || X <- lists:seq(1, 2000)],
    code:purge(made),
    churn(N + 1).
load(K) -> code:load_binary(made, "made.erl", made(K)).
made(K) ->
    case get({made, K}) of
        undefined ->
            Lines = lists:duplicate(K, "\n"),
            Held = [["V", integer_to_list(I), " = truth:id(", integer_to_list(I), "), "] || I <- lists:seq(1, K)],
            Used = [[", V", integer_to_list(I)] || I <- lists:seq(1, K)],
            Name = ["inner", integer_to_list(K)],
            Text = ["-module(made).\n-export([outer/2, ", Name, "/2]).\n", Lines,
                    "outer(X, N) ->\n", Held, "R = ", Name, "(X, N), {R", Used, "}.\n", Lines, Name, "(X, N) ->\n", Held, "R = truth:churned(X, N), {R", Used, "}.\n"],
            {made, made, Code} = compiled(unicode:characters_to_list(Text)),
            put({made, K}, Code),
            Code;
        Code ->
            Code
    end.
compiled(Text) ->
    {ok, Tokens, _} = erl_scan:string(Text),
    {ok, made, Code} = compile:forms([{attribute, 1, file, {"made.erl", 1}} | forms(Tokens)], [no_auto_import]),
    {made, made, Code}.
forms([]) -> [];
forms(Tokens) ->
    {Form, [Dot | Rest]} = lists:splitwith(fun({dot, _}) -> false; (_) -> true end, Tokens),
    {ok, F} = erl_parse:parse_form(Form ++ [Dot]),
    [F | forms(Rest)].
churned(X, _) -> fib(12 + X rem 3) + lists:sum([small(Y) || Y <- lists:seq(1, 50)]).

%% Code that is loaded so often.
loads(0) -> ok;
loads(N) ->
    {module, made} = load(N rem 40),
    code:purge(made),
    loads(N - 1).
