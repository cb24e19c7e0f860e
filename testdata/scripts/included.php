<?php
report();
return function () {
    return report();
};
