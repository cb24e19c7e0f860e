# Code that runs while this file is compiled, while it is run, and when it is imported.
package Included;
BEGIN { main::report() }
main::report();

sub import {
    main::report();
}

sub from_included { main::report() }

{
    package Included::Inner;
    sub inner { Included::from_included() }
}

main::report();
1;
